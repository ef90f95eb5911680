//! Which situations the seeds reached. A run that never reached one of them proves nothing about it
//! and fails.

/// A situation that a run has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Situation {
    Crash,
    Pause,
    Drain,
    ClockJump,
    LostRequest,
    LostAnswer,
    LostHint,
    RepeatedHint,
    ClaimByName,
    StaleHint,
    Rejoined,
    Claim,
    EmptyClaim,
    Replaced,
    ZombieRefused,
    ZombieWriteRefused,
    RepeatedReport,
    ForgedRefused,
    Rescue,
    Quarantine,
    StrayHandedBack,
    HandedBack,
    LeaseHeldByAnother,
    CancelledBeforeClaim,
    CancelledWhileRunning,
    StrangerRefused,
    UserRetried,
    ChildrenRedone,
    Rescheduled,
    BulkChanged,
    QueuePaused,
    KeyRepeated,
    KeyRaced,
    Delayed,
    Failed,
    DeadLetter,
    Snoozed,
    Deadline,
    TimedOut,
    ResumedFromCheckpoint,
    ParentWaited,
    FinishStep,
    ParentWithErrors,
    ChildSubmittedAgain,
    LegitimateWait,
}

const SITUATIONS: usize = Situation::LegitimateWait as usize + 1;

/// How often each situation occurred.
#[derive(Debug, Clone)]
pub(crate) struct Coverage([(Option<Situation>, u64); SITUATIONS]);

impl Default for Coverage {
    fn default() -> Self {
        Self([(None, 0); SITUATIONS])
    }
}

impl Coverage {
    pub(crate) fn saw(&mut self, situation: Situation) {
        let entry = &mut self.0[situation as usize];
        *entry = (Some(situation), entry.1 + 1);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (mine.0.or(theirs.0), mine.1 + theirs.1);
        }
    }

    pub(crate) fn count(&self, situation: Situation) -> u64 {
        self.0[situation as usize].1
    }

    /// How many situations never occurred.
    pub(crate) fn unseen(&self) -> usize {
        self.0.iter().filter(|(_, count)| *count == 0).count()
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (situation, count) in &self.0 {
            if let Some(situation) = situation {
                write!(f, "{situation:?} {count}, ")?;
            }
        }
        write!(f, "never seen: {}", self.unseen())
    }
}
