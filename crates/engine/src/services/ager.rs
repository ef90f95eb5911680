//! The ager: tasks that have waited too long get a part of the starts of their queue, whatever their priority (R13).
//!
//! A part, and not all: where tasks take minutes, hours of waiting are common, and priorities must still mean something. The
//! part is a share of what the queue gets done, so it is the same for fast queues and for slow ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    StoreError, bounds,
    statistics::{Measure, SPAN_MICROS, Tally, TallyFilter},
};

use super::{DutySettings, millis};
use crate::{
    Engine,
    service::{Duty, Pass},
};

/// Of so many tasks of a queue that end, one that has waited too long is started.
const ONE_OF: i64 = 10;
/// Tasks of a queue that are brought forward at once: a queue that ends hundreds a second has them started within a second.
const AT_ONCE: usize = 10;
/// One hour more than is needed, so that nothing is missed when an hour ends, in milliseconds.
const LOOKED_BACK_MS: u64 = SPAN_MICROS as u64 / 1_000;

#[derive(Debug)]
pub struct Ager {
    starve_after: Duration,
    /// What each queue in which somebody starves had ended when somebody was last brought forward.
    ended: Mutex<HashMap<String, i64>>,
}

impl Ager {
    pub fn new(settings: &DutySettings) -> Self {
        Self {
            starve_after: settings.starve_after,
            ended: Mutex::default(),
        }
    }

    /// How many tasks of each starving queue may go before the others now.
    fn allowances(
        &self,
        starving: BTreeSet<String>,
        ended: &HashMap<String, i64>,
    ) -> Vec<(String, usize)> {
        let mut before = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        before.retain(|queue, _| starving.contains(queue));
        let mut allowances = Vec::new();
        for queue in starving {
            let now = ended.get(&queue).copied().unwrap_or(0);
            let allowed = match before.get(&queue) {
                None => 1,
                // Hours that are over are no longer counted.
                Some(then) if now < *then => 0,
                Some(then) => usize::try_from((now - then) / ONE_OF)
                    .unwrap_or(0)
                    .min(AT_ONCE),
            };
            if allowed > 0 || before.get(&queue).is_some_and(|then| now < *then) {
                before.insert(queue.clone(), now);
            }
            if allowed > 0 {
                allowances.push((queue, allowed));
            }
        }
        allowances
    }
}

#[async_trait]
impl Duty for Ager {
    fn name(&self) -> &'static str {
        "ager"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        if self.starve_after.is_zero() {
            return Ok(Pass::Clear);
        }
        let (waited_ms, now) = (millis(self.starve_after), engine.store.now().await?);
        let heads = engine.store.list_heads().await?.into_iter();
        let starving: BTreeSet<String> = heads
            .filter(|head| {
                head.priority != bounds::FORWARD && head.due_at.plus_ms(waited_ms) <= now
            })
            .map(|head| head.queue)
            .collect();
        let ended = match starving.is_empty() {
            true => HashMap::new(),
            false => {
                let spans = Some((now.minus_ms(LOOKED_BACK_MS), now.plus_ms(1)));
                ended_by_queue(&engine.store.read_tallies(&TallyFilter { spans }).await?)
            }
        };
        for (queue, most) in self.allowances(starving, &ended) {
            if engine.store.bring_forward(&queue, waited_ms, most).await? > 0 {
                engine.doorbell.ring(&queue);
            }
        }
        Ok(Pass::Clear)
    }
}

fn ended_by_queue(tallies: &[Tally]) -> HashMap<String, i64> {
    let mut ended = HashMap::new();
    for tally in tallies
        .iter()
        .filter(|tally| tally.key.measure == Measure::Ended)
    {
        *ended.entry(tally.key.queue.clone()).or_default() += tally.n;
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_ten_starts_is_for_those_who_have_waited_too_long() {
        let ager = Ager::new(&DutySettings::default());
        let allowed = |ended: i64| {
            let starving = BTreeSet::from(["q".to_owned()]);
            ager.allowances(starving, &HashMap::from([("q".to_owned(), ended)]))
                .first()
                .map_or(0, |(_, most)| *most)
        };
        assert_eq!(
            allowed(100),
            1,
            "whoever is found starving does not wait for others first"
        );
        assert_eq!(
            [allowed(100), allowed(109), allowed(110), allowed(115)],
            [0, 0, 1, 0]
        );
        assert_eq!(allowed(140), 3);
        assert_eq!(allowed(10_000), AT_ONCE);
        // An hour is over, and what ended in it is not counted any more.
        assert_eq!([allowed(5), allowed(14), allowed(15)], [0, 0, 1]);
        assert!(ager.allowances(BTreeSet::new(), &HashMap::new()).is_empty());
        assert_eq!(
            allowed(15),
            1,
            "a queue in which nobody starved meanwhile begins anew"
        );
    }
}
