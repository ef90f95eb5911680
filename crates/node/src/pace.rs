//! The pace of polling: short waits after work was found, longer and longer ones while there is
//! none, with jitter so that nodes do not poll in step.

use std::time::Duration;

use crate::settings::PollSettings;

/// The longest wait that counts as quick.
const QUICK: Duration = Duration::from_millis(10);

/// The waits between polls.
#[derive(Debug)]
pub struct Pace {
    settings: PollSettings,
    wait: Duration,
    /// The same while a task is due that the poll did not get: another node is claiming it, or it
    /// became due a moment ago.
    wait_out_of_reach: Duration,
}

impl Pace {
    pub fn new(settings: PollSettings) -> Self {
        Self {
            settings,
            wait: settings.least,
            wait_out_of_reach: settings.least,
        }
    }

    /// A poll found work: the waits start again.
    pub fn found(&mut self) {
        self.wait = self.settings.least;
        self.wait_out_of_reach = self.settings.least;
    }

    /// Whether the next wait is so short that the due time of the next task does not matter.
    pub fn is_quick(&self) -> bool {
        self.wait <= QUICK
    }

    /// The wait after a poll that found nothing. `random` is a fresh number from 0 to 1. The next
    /// wait is twice as long.
    pub fn idle(&mut self, random: f64) -> Duration {
        next(&mut self.wait, self.settings.most, random)
    }

    /// The same, but no longer than until the next task is due.
    pub fn idle_until(&mut self, due: Option<Duration>, random: f64) -> Duration {
        let wait = self.idle(random);
        if due.is_some_and(|due| due.is_zero()) {
            return next(&mut self.wait_out_of_reach, self.settings.most, random);
        }
        self.wait_out_of_reach = self.settings.least;
        due.map_or(wait, |due| due.min(wait))
    }
}

fn next(wait: &mut Duration, most: Duration, random: f64) -> Duration {
    let now = *wait;
    *wait = (now * 2).min(most);
    now.mul_f64(0.75 + random * 0.5).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_starts_again_when_work_is_found() {
        let mut pace = Pace::new(PollSettings {
            least: Duration::from_millis(5),
            most: Duration::from_millis(100),
        });
        let waits: Vec<u128> = (0..7).map(|_| pace.idle(0.5).as_millis()).collect();

        assert_eq!(waits, [5, 10, 20, 40, 80, 100, 100]);
        assert!(!pace.is_quick());
        pace.found();
        assert!(pace.is_quick());
        assert_eq!(pace.idle(0.5).as_millis(), 5);
    }

    #[test]
    fn a_poll_comes_when_a_task_is_due_and_is_repeated_more_and_more_slowly() {
        let mut pace = Pace::new(PollSettings {
            least: Duration::from_millis(5),
            most: Duration::from_millis(100),
        });
        while pace.idle(0.5).as_millis() < 100 {}
        let mut wait = |due: Option<u64>| {
            pace.idle_until(due.map(Duration::from_millis), 0.5)
                .as_millis()
        };

        assert_eq!(
            (wait(None), wait(Some(30)), wait(Some(300))),
            (100, 30, 100)
        );
        assert_eq!([0; 4].map(|due| wait(Some(due))), [5, 10, 20, 40]);
        assert_eq!((wait(Some(1)), wait(Some(0))), (1, 5));
    }
}
