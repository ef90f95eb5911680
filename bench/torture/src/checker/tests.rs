//! Healthy evidence has no findings, and each planted violation is found.

use longhaul_domain::Status;
use serde_json::json;
use uuid::Uuid;

use super::{Evidence, Observation, Promise, findings};
use crate::{
    dump::{AttemptRow, CountRow, Dump, TaskRow},
    fault::{Fault, FaultRecord, ServerFault},
    gateway::Answer,
    history::{Asked, Call, ItemHistory},
    journal::{End, Line, Step},
    plan::{self, Item, Kind},
    server::Service,
    tasks::{SignedResult, Work},
};

const ECHO: Uuid = Uuid::from_u128(1);
const STEPS: Uuid = Uuid::from_u128(2);
const FAN: Uuid = Uuid::from_u128(3);
const LEAVES: [Uuid; 2] = [Uuid::from_u128(4), Uuid::from_u128(5)];
const NODES: [Uuid; 2] = [Uuid::from_u128(101), Uuid::from_u128(102)];

/// The evidence before it is indexed, for tests to break.
struct EvidenceBuilder {
    histories: Vec<ItemHistory>,
    observations: Vec<Observation>,
    dump: Dump,
}

impl EvidenceBuilder {
    fn task(&mut self, id: Uuid) -> &mut TaskRow {
        self.dump
            .tasks
            .iter_mut()
            .find(|task| task.id == id)
            .unwrap()
    }

    fn see(&mut self, at: i64, process: usize, task: Uuid, attempt: u32, step: Step) {
        let line = Line {
            at,
            task,
            attempt,
            step,
        };

        self.observations.push(Observation {
            incarnation: format!("{}.1", process + 1),
            line,
        });
    }

    /// The broken promises of the evidence.
    fn promises(self) -> Vec<Promise> {
        findings(&self.evidence(Vec::new()))
            .into_iter()
            .map(|finding| finding.promise)
            .collect()
    }

    fn evidence(mut self, fault_log: Vec<FaultRecord>) -> Evidence {
        let status = |task: &TaskRow| task.status.as_str().to_owned();
        let count = |task: &TaskRow| CountRow {
            task_type: task.task_type.clone(),
            status: status(task),
            tasks: json!(1),
        };

        // Correct counts, so that a test that changes rows breaks only one promise.
        if self.dump.counts.is_empty() {
            self.dump.counts = self.dump.tasks.iter().map(count).collect();
        }

        Evidence::new(self.histories, fault_log, self.observations, self.dump)
    }
}

fn item(kind: Kind, work: Work) -> Item {
    Item {
        kind,
        work,
        delay_ms: 0,
        cancel_after_ms: None,
        max_attempts: 5,
        ..plan::items(1, 1).remove(0)
    }
}

fn history(item: Item, id: Uuid) -> ItemHistory {
    let call = Call {
        from: 10,
        to: 20,
        asked: Asked::Submit,
        answer: Answer::Submitted(id),
    };

    ItemHistory {
        item,
        calls: vec![call],
    }
}

fn made(n: u64, attempt: u32, process: usize, value: u64) -> SignedResult {
    SignedResult {
        n,
        attempt,
        incarnation: format!("{}.1", process + 1),
        value,
    }
}

fn row(id: Uuid, task_type: &str, work: &Work, result: &SignedResult) -> TaskRow {
    TaskRow {
        id,
        parent: None,
        node: Some(NODES[0]),
        task_type: task_type.to_owned(),
        status: Status::Completed,
        attempt: 1,
        retry_count: 0,
        crash_count: 0,
        created_at: 15,
        due_at: 15,
        started_at: Some(100),
        last_attempt_at: Some(100),
        finished_at: Some(200),
        children_total: 0,
        children_completed: 0,
        children_with_errors: 0,
        children_failed: 0,
        children_cancelled: 0,
        parameters: serde_json::to_string(work).unwrap(),
        checkpoint: None,
        result: Some(serde_json::to_string(result).unwrap()),
        error: None,
    }
}

fn archived(task: Uuid, attempt: u32, outcome: &str, node: usize, at: i64) -> AttemptRow {
    let started_at = Some(at);
    let ended_at = Some(at + 50);
    let error = Some(json!({ "attempt": attempt }).to_string());

    AttemptRow {
        task,
        node: Some(NODES[node]),
        attempt,
        outcome: outcome.to_owned(),
        started_at,
        ended_at,
        error,
    }
}

fn start(node: usize, resumed: u32) -> Step {
    Step::Start {
        node: Some(NODES[node]),
        resumed,
    }
}

fn finish(made: SignedResult) -> Step {
    Step::Finish {
        end: End::Completed,
        made: Some(made),
    }
}

/// An echo, a task of two steps whose first attempt died after the first, and a parent with two
/// children.
#[expect(clippy::too_many_lines, reason = "one table of planted faults")]
fn healthy() -> EvidenceBuilder {
    let works = [
        Work {
            n: 0,
            ..Work::default()
        },
        Work {
            n: 1,
            steps: 2,
            ..Work::default()
        },
        Work {
            n: 2,
            children: 2,
            ..Work::default()
        },
    ];

    let histories = vec![
        history(item(Kind::Echo, works[0].clone()), ECHO),
        history(item(Kind::Steps, works[1].clone()), STEPS),
        history(item(Kind::Fan, works[2].clone()), FAN),
    ];
    let echo = row(ECHO, "echo", &works[0], &made(0, 1, 0, 0));

    let steps = TaskRow {
        attempt: 2,
        crash_count: 1,
        node: Some(NODES[1]),
        last_attempt_at: Some(160),
        checkpoint: Some("2".to_owned()),
        ..row(STEPS, "steps", &works[1], &made(1, 2, 1, 2))
    };

    let fan = TaskRow {
        attempt: 2,
        due_at: 250,
        last_attempt_at: Some(300),
        finished_at: Some(400),
        children_total: 2,
        children_completed: 2,
        ..row(FAN, "fan", &works[2], &made(2, 2, 0, 3))
    };

    let leaf = |index: u32| {
        let work = Work {
            n: 2,
            index,
            ..Work::default()
        };
        let leaf = row(
            LEAVES[index as usize],
            "leaf",
            &work,
            &made(2, 1, 0, u64::from(index) + 1),
        );

        TaskRow {
            parent: Some(FAN),
            ..leaf
        }
    };

    let tasks = vec![echo, steps, fan, leaf(0), leaf(1)];
    let attempts = vec![
        archived(STEPS, 1, "crashed", 0, 100),
        archived(FAN, 1, "completed", 0, 40),
    ];
    let dump = Dump {
        tasks,
        attempts,
        counts: Vec::new(),
        keys_without_task: 0,
    };

    let mut run = EvidenceBuilder {
        histories,
        observations: Vec::new(),
        dump,
    };

    run.see(100, 0, ECHO, 1, start(0, 0));
    run.see(190, 0, ECHO, 1, finish(made(0, 1, 0, 0)));
    run.see(100, 0, STEPS, 1, start(0, 0));
    run.see(110, 0, STEPS, 1, Step::Try { done: 1 });
    run.see(120, 0, STEPS, 1, Step::Saved { done: 1 });
    run.see(160, 1, STEPS, 2, start(1, 1));
    run.see(190, 1, STEPS, 2, finish(made(1, 2, 1, 2)));
    run.see(40, 0, FAN, 1, start(0, 0));

    run.see(
        90,
        0,
        FAN,
        1,
        Step::Finish {
            end: End::Waits,
            made: None,
        },
    );

    for (index, leaf) in LEAVES.into_iter().enumerate() {
        run.see(100, 0, leaf, 1, start(0, 0));
        run.see(190, 0, leaf, 1, finish(made(2, 1, 0, index as u64 + 1)));
    }

    run.see(300, 0, FAN, 2, start(0, 0));
    run.see(390, 0, FAN, 2, finish(made(2, 2, 0, 3)));
    run
}

#[test]
fn healthy_evidence_has_no_findings() {
    assert_eq!(healthy().promises(), []);
}

#[test]
fn a_lost_task_is_found() {
    let mut run = healthy();
    run.dump.tasks.retain(|task| task.id != ECHO);
    run.observations
        .retain(|observation| observation.line.task != ECHO);
    assert_eq!(run.promises(), [Promise::Present]);
}

#[test]
fn a_phantom_and_a_second_task_for_a_key_are_found() {
    let mut run = healthy();
    let phantom = Work {
        n: 77,
        ..Work::default()
    };

    run.task(ECHO).parameters = serde_json::to_string(&phantom).unwrap();
    assert_eq!(run.promises(), [Promise::Asked, Promise::Present]);

    let mut run = healthy();
    let twin = TaskRow {
        id: Uuid::from_u128(9),
        attempt: 0,
        status: Status::Cancelled,
        started_at: None,
        result: None,
        ..run.task(ECHO).clone()
    };

    run.dump.tasks.push(TaskRow {
        last_attempt_at: None,
        ..twin
    });
    assert_eq!(run.promises(), [Promise::Asked]);
}

#[test]
fn a_read_that_goes_back_and_a_changed_end_are_found() {
    let read = |from, status, version| Call {
        from,
        to: from + 1,
        asked: Asked::Read,
        answer: Answer::Read {
            status,
            attempt: 1,
            version,
        },
    };

    let mut run = healthy();
    run.histories[0]
        .calls
        .extend([read(30, Status::Running, 5), read(40, Status::Running, 4)]);
    assert_eq!(run.promises(), [Promise::Reads]);

    let mut run = healthy();
    run.histories[0].calls.push(read(30, Status::Failed, 5));
    assert_eq!(run.promises(), [Promise::OneEnd]);
}

#[test]
fn a_gap_a_second_start_and_another_node_are_found() {
    let mut run = healthy();
    run.dump.attempts.retain(|row| row.task != STEPS);
    assert_eq!(
        run.promises(),
        [Promise::Attempts, Promise::Attempts],
        "the gap, and the crash without an attempt"
    );

    let mut run = healthy();
    run.see(105, 1, ECHO, 1, start(1, 0));
    assert!(run.promises().contains(&Promise::Attempts));

    let mut run = healthy();
    run.see(500, 1, ECHO, 2, start(1, 0));
    assert_eq!(run.promises(), [Promise::NothingAfterEnd]);
}

#[test]
fn a_zombies_result_is_found() {
    let mut run = healthy();
    run.task(STEPS).result = Some(serde_json::to_string(&made(1, 1, 0, 2)).unwrap());
    assert_eq!(run.promises(), [Promise::NoZombieWrite]);

    let mut run = healthy();
    run.see(180, 0, STEPS, 1, Step::Late { accepted: true });
    assert_eq!(run.promises(), [Promise::NoZombieWrite]);

    let mut run = healthy();
    run.see(180, 0, STEPS, 1, Step::Late { accepted: false });
    assert_eq!(run.promises(), []);
}

#[test]
fn an_unknown_result_and_a_second_end_are_found() {
    let mut run = healthy();
    run.task(ECHO).result = Some(serde_json::to_string(&made(0, 1, 0, 4)).unwrap());
    assert_eq!(run.promises(), [Promise::RightEnd]);

    let mut run = healthy();
    run.dump.attempts[0] = archived(STEPS, 1, "completed", 0, 100);
    let promises = run.promises();
    assert!(promises.contains(&Promise::OneEnd), "{promises:?}");
}

#[test]
fn a_parent_that_disagrees_with_its_children_is_found() {
    let mut run = healthy();
    run.task(FAN).children_completed = 1;
    assert_eq!(run.promises(), [Promise::Parents]);

    let mut run = healthy();
    run.task(LEAVES[1]).finished_at = Some(350);
    assert_eq!(run.promises(), [Promise::Parents]);

    let mut run = healthy();
    let twice = Work {
        n: 2,
        index: 0,
        ..Work::default()
    };

    run.task(LEAVES[1]).parameters = serde_json::to_string(&twice).unwrap();
    assert_eq!(run.promises(), [Promise::Parents]);
}

#[test]
fn an_early_start_and_a_start_after_the_end_are_found() {
    let mut run = healthy();
    run.histories[0].item.delay_ms = 1;
    assert_eq!(run.promises(), [Promise::InTime]);

    let mut run = healthy();
    run.task(ECHO).finished_at = Some(90);
    assert_eq!(run.promises(), [Promise::NothingAfterEnd]);
}

#[test]
fn a_task_that_ran_without_a_claim_is_found() {
    let mut run = healthy();
    let echo = run.task(ECHO);
    echo.status = Status::Cancelled;
    echo.attempt = 0;
    echo.result = None;
    echo.started_at = None;
    echo.last_attempt_at = None;

    run.histories[0].item.cancel_after_ms = Some(1);
    let promises = run.promises();
    assert!(promises.contains(&Promise::InTime), "{promises:?}");
}

#[test]
fn a_stuck_task_and_a_wrong_end_are_found() {
    let mut run = healthy();
    run.task(ECHO).status = Status::Running;
    assert_eq!(run.promises(), [Promise::NothingStuck]);

    let mut run = healthy();
    run.histories[0].item.kind = Kind::Fatal;
    assert_eq!(run.promises(), [Promise::RightEnd]);
}

#[test]
fn a_forgotten_checkpoint_is_found() {
    let mut run = healthy();
    for observation in &mut run.observations {
        if let Step::Start { resumed, .. } = &mut observation.line.step {
            *resumed = 0;
        }
    }
    assert_eq!(run.promises(), [Promise::Checkpoints]);
}

#[test]
fn wrong_counts_and_refused_requests_are_found() {
    let mut run = healthy();
    run.dump.counts = vec![CountRow {
        task_type: "echo".to_owned(),
        status: "COMPLETED".to_owned(),
        tasks: json!("1"),
    }];
    let promises = run.promises();

    assert!(
        promises.iter().all(|promise| *promise == Promise::Counts) && promises.len() == 3,
        "{promises:?}"
    );

    let mut run = healthy();
    run.histories[0].calls[0].answer = Answer::Refused("no".to_owned());
    assert!(run.promises().contains(&Promise::NoSurprise));
}

/// A server that was killed and answered again, both in milliseconds.
fn outage(service: Service, at: i64, over: i64) -> FaultRecord {
    FaultRecord {
        at: at * 1_000,
        fault: Fault::Server(service, ServerFault::Kill),
        ms: 0,
        network_fault: None,
        incarnation: None,
        over: Some(over * 1_000),
    }
}

#[test]
fn tasks_flow_again_when_half_of_a_seconds_tasks_are_claimed() {
    // A task every 50 ms: one is claimed at once, all others wait until 3,000 ms.
    let flow = || {
        let mut run = healthy();
        let echo = run.task(ECHO).clone();
        run.dump.tasks = (0..100)
            .map(|n| TaskRow {
                id: Uuid::from_u128(1_000 + n),
                ..echo.clone()
            })
            .collect();

        for (n, task) in run.dump.tasks.iter_mut().enumerate() {
            task.created_at = n as i64 * 50_000;
            task.due_at = task.created_at;
            let waits_until = if n == 21 { 0 } else { 3_000_000 };
            task.started_at = Some(waits_until.max(task.created_at + 1_000));
        }

        run
    };

    let evidence = flow().evidence(vec![outage(Service::Rabbitmq, 1_000, 4_000)]);
    assert_eq!(evidence.without_broker_ms(), [2_000]);
    assert_eq!(evidence.after_broker_ms(), [501]);

    let without_database = vec![
        outage(Service::Rabbitmq, 1_000, 4_900),
        outage(Service::Postgres, 2_500, 2_900),
    ];
    let evidence = flow().evidence(without_database);

    assert_eq!(
        evidence.without_broker_ms(),
        [0; 0],
        "the database was down too"
    );
    assert_eq!(
        evidence.after_broker_ms(),
        [0; 0],
        "too few tasks were submitted after it"
    );
}

#[test]
fn a_node_is_replaced_when_the_first_of_its_tasks_is_claimed_again() {
    // STEPS began on the first node, which died soon after; its second attempt began five
    // milliseconds later.
    let killed = FaultRecord {
        at: 110,
        fault: Fault::Kill,
        incarnation: Some("1.1".to_owned()),
        ..outage(Service::Redis, 0, 0)
    };

    let times = |beside: Option<FaultRecord>| {
        let mut run = healthy();
        run.task(STEPS).last_attempt_at = Some(5_110);
        let evidence = run.evidence([killed.clone()].into_iter().chain(beside).collect());
        (evidence.after_kills_ms(), evidence.after_lone_kills_ms())
    };

    assert_eq!(times(None), (vec![5], vec![5]));
    assert_eq!(
        times(Some(outage(Service::Postgres, 1, 2))),
        (vec![], vec![]),
        "the database was down"
    );
    let frozen = FaultRecord {
        fault: Fault::Server(Service::Mariadb, ServerFault::Freeze),
        ..outage(Service::Mariadb, 1, 2)
    };

    assert_eq!(
        times(Some(frozen)),
        (vec![], vec![]),
        "the database was frozen"
    );

    let other = |fault| FaultRecord {
        at: 10,
        fault,
        ms: 1,
        over: None,
        incarnation: None,
        ..killed.clone()
    };

    let cut_off = FaultRecord {
        over: Some(200),
        ..other(Fault::Partition(Service::Postgres))
    };
    for unhealthy in [other(Fault::Freeze), other(Fault::Kill), cut_off] {
        assert_eq!(times(Some(unhealthy)), (vec![5], vec![]));
    }

    assert_eq!(
        times(Some(other(Fault::Partition(Service::Redis)))).1,
        [5],
        "rescues do not need Redis"
    );
}
