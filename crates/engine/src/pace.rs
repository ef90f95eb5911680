//! The pace of polling: quick after work was found, slower and slower while there is none, never in step with others.

use std::time::Duration;

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
        Self { least: Duration::from_millis(5), most: Duration::from_secs(1) }
    }
}

/// The wait that has been reached.
#[derive(Debug)]
pub struct Pace {
    settings: PollSettings,
    wait: Duration,
}

impl Pace {
    pub fn new(settings: PollSettings) -> Self {
        Self { settings, wait: settings.least }
    }

    /// Something was found: quick again.
    pub fn found(&mut self) {
        self.wait = self.settings.least;
    }

    /// Nothing was found. How long to wait now, `random` being a fresh number from 0 to 1.
    pub fn idle(&mut self, random: f64) -> Duration {
        let now = self.wait;
        self.wait = (self.wait * 2).min(self.settings.most);
        now.mul_f64(0.75 + random * 0.5).min(self.settings.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_to_its_most_and_starts_over_when_work_is_found() {
        let mut pace = Pace::new(PollSettings { least: Duration::from_millis(5), most: Duration::from_millis(100) });
        let waits: Vec<u128> = (0..7).map(|_| pace.idle(0.5).as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 100, 100]);
        pace.found();
        assert_eq!(pace.idle(0.5).as_millis(), 5);
    }
}
