use longhaul_domain::contract::store::{AttemptEnd, AttemptReport};
use longhaul_testkit::names::queue_name;

use super::*;
use crate::{
    slots::{ServedQueue, TypeSlots},
    test_node::claimed_task,
};

fn in_flight() -> InFlight {
    let types = vec![TypeSlots {
        name: "t".to_owned(),
        at_most: None,
        resources: Vec::new(),
    }];

    InFlight::new(SlotPlan {
        total: 2,
        queues: vec![ServedQueue::shared(queue_name("q"))],
        types,
        ..SlotPlan::default()
    })
}

fn ended(task: &TaskRecord) -> EndedAttempt {
    let report = AttemptReport {
        lease: task.lease().unwrap(),
        end: AttemptEnd::HandedBack,
    };
    EndedAttempt::new(task, Arc::new(TaskInfo::of(task)), report)
}

#[test]
fn no_slot_is_reserved_while_the_store_may_answer_with_as_many_tasks() {
    let mut in_flight = in_flight();
    in_flight.asking(true);
    assert!(!in_flight.reserve_slot("q", "t"));
    in_flight.asking(false);
    assert!(
        in_flight.reserve_slot("q", "t")
            && in_flight.reserve_slot("q", "t")
            && !in_flight.reserve_slot("q", "t")
    );

    in_flight.release_slot("q", "t");
    assert_eq!(in_flight.room(&in_flight.open_scopes()[0]), 1);
}

#[test]
fn a_claim_names_the_older_attempt_that_still_runs_here() {
    let mut in_flight = in_flight();
    let first = claimed_task(1);
    let second = claimed_task(2);
    assert_eq!(in_flight.take(&first).unwrap().replaces, None);
    let taken = in_flight.take(&second).unwrap();

    assert_eq!(
        (Some(taken.lease), taken.replaces),
        (second.lease(), first.lease())
    );
    assert_eq!(
        (in_flight.running_or_reserved(), in_flight.leases()),
        (1, vec![taken.lease])
    );
    assert!(
        !in_flight.add_report(ended(&first)),
        "the end of the older attempt is not reported"
    );

    assert_eq!(
        (in_flight.running_or_reserved(), in_flight.waiting_reports()),
        (1, 0)
    );
}

#[test]
fn nothing_is_claimed_while_too_many_reports_wait() {
    let mut in_flight = in_flight();
    let tasks: Vec<TaskRecord> = (0..=MIN_REPORTS).map(|_| claimed_task(1)).collect();
    for task in &tasks {
        assert_eq!(
            (in_flight.open_scopes().len(), in_flight.full_scopes().len()),
            (1, 0)
        );
        in_flight.take(task).unwrap();
        assert!(in_flight.add_report(ended(task)));
    }

    assert_eq!(
        (in_flight.open_scopes().len(), in_flight.full_scopes().len()),
        (0, 1)
    );
    let delivered = in_flight.next_reports(1);

    in_flight.delivered(&delivered);
    assert_eq!(in_flight.room(&in_flight.open_scopes()[0]), 2);
}

#[test]
fn an_older_attempt_that_has_ended_is_not_replaced() {
    let mut in_flight = in_flight();
    let first = claimed_task(1);
    let second = claimed_task(2);
    in_flight.take(&first).unwrap();
    assert!(in_flight.add_report(ended(&first)));
    assert_eq!(in_flight.take(&second).unwrap().replaces, None);
    assert_eq!(
        (in_flight.running_or_reserved(), in_flight.waiting_reports()),
        (1, 1)
    );
}
