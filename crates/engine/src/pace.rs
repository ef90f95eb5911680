//! The pace of polling: quick after work was found, slower and slower while there is none, never in step with others.

use std::time::Duration;

/// Up to here a wait is quick.
const QUICK: Duration = Duration::from_millis(10);

/// How long to wait between two looks at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollSettings {
    /// After a look that found something.
    pub least: Duration,
    /// However long nothing was found: a bell that was never heard costs this much.
    pub most: Duration,
}

impl Default for PollSettings {
    fn default() -> Self {
        Self {
            least: Duration::from_millis(5),
            most: Duration::from_secs(1),
        }
    }
}

/// The wait that has been reached.
#[derive(Debug)]
pub struct Pace {
    settings: PollSettings,
    wait: Duration,
    /// The same for looks that found nothing although something is due: others have it in hand just now, or its
    /// moment has come a moment ago.
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

    /// Something was found: quick again.
    pub fn found(&mut self) {
        self.wait = self.settings.least;
        self.wait_out_of_reach = self.settings.least;
    }

    /// Whether the next wait is so short that it does not matter whether something is due within it.
    pub fn is_quick(&self) -> bool {
        self.wait <= QUICK
    }

    /// How long to wait now, `random` being a fresh number from 0 to 1. The next wait is twice as long, until something is found.
    pub fn idle(&mut self, random: f64) -> Duration {
        next(&mut self.wait, self.settings.most, random)
    }

    /// The same, but no longer than until the next task is due, if any is known.
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
    fn the_wait_doubles_to_its_most_and_starts_over_when_work_is_found() {
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
    fn a_look_comes_when_a_task_is_due_and_not_at_once_again_while_it_is_out_of_reach() {
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
