//! Children of parents that run again: none twice, none left out.

use longhaul::{Children, Context, Outcome, Status, Stop, Task, testing::TestLonghaul};

use crate::memory_store::Echo;

/// Submits a child for each number, and saves after each.
struct Listed;

impl Task for Listed {
    const TYPE: &'static str = "listed";
    const FINISH_STEP: bool = true;
    type Params = Vec<u32>;
    type Output = usize;

    async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
        let done: usize = ctx.checkpoint()?.unwrap_or(0);
        for (index, number) in ctx.params.iter().enumerate().skip(done) {
            ctx.submit::<Echo>(*number).await?;
            ctx.save_checkpoint(&(index + 1)).await?;
        }
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, _ctx: Context<Self>, children: Children) -> Outcome<usize> {
        Ok(children.all.len())
    }
}

#[tokio::test]
async fn a_parent_that_goes_on_from_its_checkpoint_submits_the_rest() {
    let longhaul = TestLonghaul::new().register(Listed).register(Echo).start();
    let handle = longhaul.submit::<Listed>(vec![3, 2, 1, 0]).await.unwrap();
    longhaul.crash_after_checkpoints(2);
    longhaul.run_until_done().await;
    assert_eq!((longhaul.crashes(), longhaul.result(&handle)), (1, 4));
    assert_eq!(longhaul.submitted::<Echo>(), [3, 2, 1, 0]);
}

/// Submits equal children with keys of their own, and saves after each.
struct Rounds;

impl Task for Rounds {
    const TYPE: &'static str = "rounds";
    type Params = u32;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for round in ctx.checkpoint()?.unwrap_or(0)..ctx.params {
            ctx.submit::<Echo>(0)
                .idempotency_key(&format!("round {round}"))
                .await?;
            ctx.save_checkpoint(&(round + 1)).await?;
        }
        Err(Stop::wait_for_children())
    }
}

#[tokio::test]
async fn equal_children_on_both_sides_of_a_checkpoint_are_told_apart_by_their_keys() {
    let longhaul = TestLonghaul::new().register(Rounds).register(Echo).start();
    let first = longhaul.submit::<Rounds>(3).await.unwrap();
    longhaul.crash_after_checkpoints(1);
    longhaul.run_until_done().await;
    assert_eq!(longhaul.crashes(), 1);
    let second = longhaul.submit::<Rounds>(3).await.unwrap();

    longhaul.run_until_done().await;
    for handle in [first, second] {
        longhaul.assert_ended(&handle, Status::Completed);
        assert_eq!(
            longhaul.record(&handle).children.total,
            3,
            "a key counts within its parent"
        );
    }
}

/// Submits the same twice in every attempt and in its finish step.
struct Twins;

impl Task for Twins {
    const TYPE: &'static str = "twins";
    const FINISH_STEP: bool = true;
    type Params = ();
    type Output = usize;

    async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
        ctx.submit_all::<Echo>([1, 0]).await?;
        ctx.submit::<Echo>(0).await?;
        if ctx.attempt() == 1 {
            return Err(Stop::retryable("once more"));
        }
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<usize> {
        ctx.submit::<Echo>(0).await?;
        Ok(children.all.len())
    }
}

#[tokio::test]
async fn equal_children_are_counted_and_those_of_the_finish_step_are_apart() {
    let longhaul = TestLonghaul::new().register(Twins).register(Echo).start();
    let handle = longhaul.submit::<Twins>(()).await.unwrap();
    longhaul.run_until_done().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert_eq!(longhaul.result(&handle), 3);
    assert_eq!(longhaul.submitted::<Echo>(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_childs_key_that_is_too_long_is_refused_by_its_own_bound() {
    struct Wordy;
    impl Task for Wordy {
        const TYPE: &'static str = "wordy";
        type Params = ();
        type Output = String;
        async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
            let refused = ctx
                .submit::<Echo>(0)
                .idempotency_key(&"k".repeat(141))
                .await;
            ctx.submit::<Echo>(0)
                .idempotency_key(&"k".repeat(140))
                .await?;
            Ok(refused.map_or_else(|error| error.to_string(), |_| "taken".to_owned()))
        }
    }

    let longhaul = TestLonghaul::new().register(Wordy).register(Echo).start();
    let handle = longhaul.submit::<Wordy>(()).await.unwrap();
    longhaul.run_until_done().await;
    let refused = longhaul.result(&handle);
    assert!(
        refused.contains("childKey") && refused.contains("140"),
        "{refused}"
    );
}
