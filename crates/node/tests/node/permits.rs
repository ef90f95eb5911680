//! What the rate limiter learns of an attempt's permits.

use std::time::Duration;

use longhaul::{Context, Limit, Outcome, Status, Stop, Task, testing::TestLonghaul};
use longhaul_domain::contract::rate_limiter::Reservation;

const MINUTE_MS: u64 = 60_000;

/// Takes a permit of each key in order, and ends like this.
struct Calls {
    keys: &'static [&'static str],
    end: fn() -> Outcome<()>,
}

impl Task for Calls {
    const TYPE: &'static str = "calls";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for key in self.keys {
            ctx.permit(key).await?;
        }
        (self.end)()
    }
}

async fn is_open(longhaul: &TestLonghaul, key: &str) -> bool {
    matches!(
        longhaul.limiter().reserve(key, 0).await.unwrap(),
        Reservation::Granted { .. }
    )
}

fn refused() -> Stop {
    Stop::rate_limited("429 too many requests", Duration::from_secs(60))
}

#[tokio::test]
async fn a_refusal_parks_only_the_key_of_the_last_permit() {
    let calls = Calls {
        keys: &["a/x", "b/y", "c/z", "b/y"],
        end: || Err(refused()),
    };
    let longhaul = TestLonghaul::new().register(calls).start();

    longhaul.submit::<Calls>(()).await.unwrap();
    longhaul.run_until_idle().await;
    let open = [
        is_open(&longhaul, "a/x").await,
        is_open(&longhaul, "b/y").await,
        is_open(&longhaul, "c/z").await,
    ];

    assert_eq!(open, [true, false, true]);
}

#[tokio::test]
async fn a_refusal_parks_the_key_that_it_names() {
    let calls = Calls {
        keys: &["a/x", "b/y"],
        end: || Err(refused().of_key("a/x")),
    };
    let longhaul = TestLonghaul::new().register(calls).start();

    longhaul.submit::<Calls>(()).await.unwrap();
    longhaul.run_until_idle().await;
    assert_eq!(
        [
            is_open(&longhaul, "a/x").await,
            is_open(&longhaul, "b/y").await
        ],
        [false, true]
    );
}

/// Whether a parked key is open after its first attempt has ended like this.
async fn opens_after(end: fn() -> Outcome<()>) -> bool {
    let longhaul = TestLonghaul::new()
        .register(Calls {
            keys: &["a/x"],
            end,
        })
        .start();

    longhaul.limiter().park("a/x", MINUTE_MS).await.unwrap();

    longhaul.advance(Duration::from_millis(MINUTE_MS + 1));
    let handle = longhaul.submit::<Calls>(()).max_attempts(1).await.unwrap();
    longhaul.run_until_idle().await;
    assert_ne!(longhaul.record(&handle).status, Status::Queued);

    is_open(&longhaul, "a/x").await
}

#[tokio::test]
async fn only_a_result_shows_that_a_parked_key_is_open() {
    assert!(opens_after(|| Ok(())).await);
    assert!(
        !opens_after(|| Err(Stop::snooze(Duration::from_secs(3_600)))).await,
        "it may not have called yet"
    );
    assert!(
        !opens_after(|| Err(Stop::fatal("the text is empty"))).await,
        "it may not have called at all"
    );

    assert!(!opens_after(|| Err(Stop::cancelled())).await);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_permit_is_claimed_when_it_comes_and_not_at_each_that_comes() {
    let calls = Calls {
        keys: &["a/x"],
        end: || Ok(()),
    };
    let longhaul = TestLonghaul::new()
        .register(calls)
        .limit("a/x", Limit::per_minute(60))
        .start();
    let mut handles = Vec::new();

    for _ in 0..200 {
        handles.push(longhaul.submit::<Calls>(()).await.unwrap());
    }

    longhaul.run_until_done().await;
    let snoozes: Vec<u32> = handles
        .iter()
        .map(|handle| longhaul.record(handle).snooze_count)
        .collect();
    assert!(snoozes.iter().all(|count| *count <= 2), "{snoozes:?}");
}
