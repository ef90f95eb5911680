//! What a program has that asks for no feature: tasks in a SQLite file. `make test` builds this once with all features and
//! once with none.

use std::sync::Arc;

use longhaul::{Context, Longhaul, Outcome, Status, Task};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Semaphore;

/// Doubles a number, once the gate is open.
struct Double(Arc<Semaphore>);

impl Task for Double {
    const TYPE: &'static str = "double";
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let _open = self.0.acquire().await?;
        Ok(ctx.params * 2)
    }
}

#[tokio::test]
async fn at_a_signal_what_runs_in_a_file_may_finish_and_its_result_stays() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let gate = Arc::new(Semaphore::new(0));
    let longhaul = Longhaul::open(&url).await.unwrap().register(Double(Arc::clone(&gate))).start().await.unwrap();
    let handle = longhaul.submit::<Double>(21).await.unwrap();
    let id = handle.id();
    while handle.status().await.unwrap() != Status::Running {
        tokio::task::yield_now().await;
    }
    drop(handle);

    let mut stopping = Box::pin(longhaul.stop_at_signal());
    assert!(futures::poll!(&mut stopping).is_pending(), "nobody has told it to end");
    kill_process(getpid(), Signal::TERM).unwrap();
    let stopped = tokio::spawn(stopping);
    gate.add_permits(1);
    stopped.await.unwrap().unwrap();

    let again = Longhaul::open(&url).await.unwrap().without_worker().unwrap();
    assert_eq!(again.handle::<Double>(id).result().await.unwrap(), 42);
    again.stop().await;
}

#[tokio::test]
async fn a_worker_without_slots_is_refused_and_a_node_without_tasks_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let double = || Double(Arc::new(Semaphore::new(0)));
    let refused = Longhaul::open(&url("a.db")).await.unwrap().register(double()).slots(0).start().await.err().unwrap();
    assert!(refused.to_string().contains("slots is 0"), "{refused}");
    let duties = Longhaul::open(&url("b.db")).await.unwrap().register(double()).start_duties().await.unwrap();
    duties.stop().await;
}

#[tokio::test]
async fn a_store_that_nobody_knows_is_told_by_its_scheme_alone() {
    let told = Longhaul::open("oracle://ann:secret@db/x").await.err().unwrap().to_string();
    assert!(told.contains(r#"starts with "oracle""#) && told.contains("postgres://"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn a_database_whose_driver_was_left_out_is_told_by_its_feature() {
    for (url, feature) in
        [("postgres://ann:secret@127.0.0.1/x", "postgres"), ("mariadb://ann:secret@127.0.0.1/x", "mysql")]
    {
        let told = Longhaul::open(url).await.err().unwrap().to_string();
        assert!(told.contains(&format!("the feature {feature:?} in Cargo.toml")), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
}
