//! The client's plan, drawn from the seed: the same seed gives the same tasks, delays and cancels.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::settings::MANY_ATTEMPTS;
use crate::tasks::Work;

/// The number of children of a wide parent.
pub(crate) const WIDE: u32 = 100;
/// One parent in this many is wide, which bounds the number of children.
const WIDE_EVERY: usize = 40;

/// The task types. Each ends in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    Echo,
    Sleep,
    Flaky,
    Fatal,
    Steps,
    Fan,
    Patient,
}

/// One task of the client with its planned requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) work: Work,
    pub(crate) max_attempts: u32,
    pub(crate) priority: u8,
    pub(crate) delay_ms: u64,
    /// The time of the cancel after the submit was acknowledged.
    pub(crate) cancel_after_ms: Option<u64>,
    /// The pauses before each read.
    pub(crate) reads_after_ms: Vec<u64>,
    /// Whether the acknowledged submit is repeated with the same key.
    pub(crate) repeats: bool,
}

impl Item {
    /// The idempotency key of the submit and its repetitions.
    pub(crate) fn key(&self) -> String {
        format!("item/{}", self.work.n)
    }

    /// Whether the task fails in all its attempts.
    pub(crate) fn is_doomed(&self) -> bool {
        self.kind == Kind::Flaky && self.work.failures >= self.max_attempts
    }
}

/// All items in the order of submission.
pub(crate) fn items(seed: u64, tasks: usize) -> Vec<Item> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut items: Vec<Item> = (0..tasks as u64).map(|n| item(&mut random, n)).collect();
    let parents = items.iter_mut().filter(|item| item.kind == Kind::Fan);

    // The first parents are skipped, so that a small run has no wide parent.
    for parent in parents.skip(WIDE_EVERY / 2).step_by(WIDE_EVERY) {
        parent.work.children = WIDE;
    }

    items
}

/// When each item is submitted: evenly over the time, with some randomness.
pub(crate) fn submit_times(seed: u64, tasks: usize, time: Duration) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x7061_6365);
    let step = time.as_secs_f64() / tasks.max(1) as f64;
    (0..tasks)
        .map(|n| Duration::from_secs_f64(step * (n as f64 + random.random_range(0.0..1.0))))
        .collect()
}

fn item(random: &mut StdRng, n: u64) -> Item {
    let plain = Item {
        kind: Kind::Echo,
        work: Work {
            n,
            padding: "x".repeat(padding(random)),
            ..Work::default()
        },
        max_attempts: 5,
        priority: if random.random_range(0..10) == 0 {
            random.random_range(2..=9)
        } else {
            1
        },
        delay_ms: 0,
        cancel_after_ms: None,
        reads_after_ms: reads(random),
        repeats: random.random_range(0..20) == 0,
    };

    match random.random_range(0..100) {
        0..36 => plain,
        36..48 => Item {
            delay_ms: random.random_range(100..4_000),
            ..plain
        },
        48..66 => of_kind(plain, Kind::Sleep, |work| {
            work.ms = random.random_range(200..2_500)
        }),
        66..76 => {
            let flaky = of_kind(plain, Kind::Flaky, |work| {
                work.failures = random.random_range(1..=4)
            });
            Item {
                max_attempts: 6,
                ..flaky
            }
        }
        76..78 => {
            let doomed = of_kind(plain, Kind::Flaky, |work| work.failures = 99);
            Item {
                max_attempts: random.random_range(1..=3),
                ..doomed
            }
        }
        78..82 => of_kind(plain, Kind::Fatal, |_| {}),
        82..90 => {
            let steps = of_kind(plain, Kind::Steps, |work| {
                work.steps = random.random_range(3..=10);
                work.ms = random.random_range(20..200);
            });
            Item {
                max_attempts: MANY_ATTEMPTS,
                ..steps
            }
        }
        90..93 => fan(random, plain),
        _ => cancelled(random, plain),
    }
}

fn of_kind(plain: Item, kind: Kind, change: impl FnOnce(&mut Work)) -> Item {
    let mut item = Item { kind, ..plain };
    change(&mut item.work);
    item
}

/// One parent in five has failing children, one in ten is cancelled. Some become wide later.
fn fan(random: &mut StdRng, plain: Item) -> Item {
    let children = random.random_range(2..=25);
    let failing = if random.random_range(0..5) == 0 {
        random.random_range(1..children)
    } else {
        0
    };

    let item = of_kind(plain, Kind::Fan, |work| {
        work.children = children;
        work.failing = failing;
        work.ms = random.random_range(0..300);
    });

    let cancel = random.random_range(0..10) == 0;
    let cancel_after_ms = cancel.then(|| random.random_range(0..1_500));
    Item {
        max_attempts: MANY_ATTEMPTS,
        cancel_after_ms,
        ..item
    }
}

/// A cancelled task: delayed, running and reacting to the cancel, or running without reacting.
fn cancelled(random: &mut StdRng, plain: Item) -> Item {
    let cancel_after_ms = Some(random.random_range(0..2_000));
    match random.random_range(0..3) {
        0 => Item {
            delay_ms: random.random_range(3_000..5_000),
            cancel_after_ms,
            ..plain
        },
        1 => Item {
            cancel_after_ms,
            max_attempts: MANY_ATTEMPTS,
            ..of_kind(plain, Kind::Patient, |_| {})
        },
        _ => {
            let sleep = of_kind(plain, Kind::Sleep, |work| {
                work.ms = random.random_range(500..2_500)
            });
            Item {
                cancel_after_ms,
                ..sleep
            }
        }
    }
}

fn padding(random: &mut StdRng) -> usize {
    match random.random_range(0..100) {
        0..80 => random.random_range(0..100),
        80..99 => random.random_range(100..4_000),
        _ => 60_000,
    }
}

fn reads(random: &mut StdRng) -> Vec<u64> {
    let count = if random.random_range(0..5) == 0 {
        random.random_range(1..=4)
    } else {
        0
    };

    (0..count).map(|_| random.random_range(0..1_500)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_depends_on_the_seed_only() {
        let text = |seed| serde_json::to_string(&items(seed, 200)).unwrap();
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn a_plan_has_every_kind() {
        let items = items(1, 500);
        let of = |kind| items.iter().filter(|item| item.kind == kind).count();
        for kind in [
            Kind::Echo,
            Kind::Sleep,
            Kind::Flaky,
            Kind::Fatal,
            Kind::Steps,
            Kind::Fan,
            Kind::Patient,
        ] {
            assert!(of(kind) > 0, "{kind:?}");
        }

        assert!(items.iter().any(Item::is_doomed));
    }

    #[test]
    fn a_full_run_has_a_few_wide_parents() {
        for (tasks, least) in [(5_000, 3), (20_000, 12)] {
            let items = items(1, tasks);
            let children = items
                .iter()
                .map(|item| item.work.children)
                .filter(|children| *children > 0);
            let (wide, others): (Vec<u32>, Vec<u32>) =
                children.partition(|children| *children == WIDE);
            assert!(wide.len() >= least, "{} of {tasks}", wide.len());
            assert!(
                wide.len() * 30 < others.len(),
                "{} beside {}",
                wide.len(),
                others.len()
            );
        }
    }
}
