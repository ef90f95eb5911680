//! What the seeds have seen. A run in which something interesting never happened proves little, and fails.

/// The interesting things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    Crash,
    Pause,
    Drain,
    ClockJump,
    LostRequest,
    LostAnswer,
    LostBell,
    RepeatedBell,
    ClaimByName,
    StaleBell,
    ComeBack,
    Claim,
    EarlyLook,
    Replaced,
    ZombieRefused,
    ZombieWriteRefused,
    RepeatedReport,
    ForgedRefused,
    Rescue,
    Quarantine,
    StrayHandedBack,
    HandedBack,
    DutyHeldByAnother,
    CancelledBeforeClaim,
    CancelledWhileRunning,
    StrangerRefused,
    PersonRetried,
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

const SIGHTS: usize = Sight::LegitimateWait as usize + 1;

/// How often each was seen.
#[derive(Debug, Clone)]
pub(crate) struct Census([(Option<Sight>, u64); SIGHTS]);

impl Default for Census {
    fn default() -> Self {
        Self([(None, 0); SIGHTS])
    }
}

impl Census {
    pub(crate) fn saw(&mut self, sight: Sight) {
        let entry = &mut self.0[sight as usize];
        *entry = (Some(sight), entry.1 + 1);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (mine.0.or(theirs.0), mine.1 + theirs.1);
        }
    }

    pub(crate) fn count(&self, sight: Sight) -> u64 {
        self.0[sight as usize].1
    }

    /// How many of the kinds of sights were never seen.
    pub(crate) fn unseen(&self) -> usize {
        self.0.iter().filter(|(_, count)| *count == 0).count()
    }
}

impl std::fmt::Display for Census {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (sight, count) in &self.0 {
            if let Some(sight) = sight {
                write!(f, "{sight:?} {count}, ")?;
            }
        }
        write!(f, "never seen: {}", self.unseen())
    }
}
