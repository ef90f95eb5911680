use longhaul_domain::TaskIdSequence;
use longhaul_testkit::names::queue_name;

use super::*;

/// A queue of tasks, a broker with their hints, and the window between them.
struct World {
    window: DispatchWindow,
    waiting: Vec<Hint>,
    /// Hints in the broker.
    hints: Vec<TaskId>,
    ids: TaskIdSequence,
    now: Instant,
    max_hints: usize,
}

impl World {
    fn new() -> Self {
        let ids = TaskIdSequence::default();
        let now = Instant::now();
        Self {
            window: DispatchWindow::default(),
            waiting: Vec::new(),
            hints: Vec::new(),
            ids,
            now,
            max_hints: 0,
        }
    }

    fn submit(&mut self, count: usize, priority: u8) {
        for _ in 0..count {
            let task_id = self.ids.next_id(Timestamp::from_micros(1_000_000), 1);
            self.waiting.push(hint(task_id, priority));
        }
        self.waiting.sort_by_key(position);
    }

    /// One plan, whose hints all reach the broker. Returns the tasks that got one.
    fn plan(&mut self) -> Vec<TaskId> {
        self.plan_with(&Published::Confirmed).0
    }

    fn plan_with(&mut self, published: &Published) -> (Vec<TaskId>, Plan) {
        let listed: Vec<Hint> = self
            .waiting
            .iter()
            .take(self.window.list_limit())
            .cloned()
            .collect();

        let plan = self.window.plan(self.now, &listed, self.hints.len());
        let ids: Vec<TaskId> = plan
            .publish
            .iter()
            .map(|index| listed[*index].task_id)
            .collect();
        for id in &ids {
            self.window.published(self.now, *id, published);
            if published.is_confirmed() {
                self.hints.push(*id);
            }
        }

        self.max_hints = self.max_hints.max(self.hints.len());
        (ids, plan)
    }

    /// Nodes claim the tasks of this many hints.
    fn claim_hinted(&mut self, count: usize) {
        let claimed: HashSet<TaskId> = self.hints.drain(..count.min(self.hints.len())).collect();
        self.waiting.retain(|hint| !claimed.contains(&hint.task_id));
    }

    /// Nodes claim this many tasks from the store, whose hints then find nothing.
    fn claim_from_store(&mut self, count: usize) {
        let taken: HashSet<TaskId> = self
            .waiting
            .drain(..count.min(self.waiting.len()))
            .map(|hint| hint.task_id)
            .collect();
        self.hints.retain(|id| !taken.contains(id));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

fn hint(task_id: TaskId, priority: u8) -> Hint {
    let moment = Timestamp::from_micros(1_000_000);
    Hint {
        task_id,
        owner: "ann".to_owned(),
        task_type: "t".to_owned(),
        queue: queue_name("q"),
        priority,
        retry_count: 0,
        submitted_at: moment,
        due_at: moment,
        lookups: 0,
        correlation_id: None,
        trace_context: None,
    }
}

const TICK: Duration = Duration::from_millis(200);

#[test]
fn a_deep_backlog_gets_few_hints_and_its_first_tasks_get_them() {
    let mut world = World::new();
    world.submit(20_000, 1);
    let published = world.plan();
    let first: Vec<TaskId> = world
        .waiting
        .iter()
        .take(MIN_TARGET)
        .map(|hint| hint.task_id)
        .collect();

    assert_eq!(published, first);
    assert!(world.window.is_backlogged());
    for _ in 0..100 {
        world.pass(TICK);
        world.plan();
    }

    assert_eq!(
        world.max_hints, MIN_TARGET,
        "no node claims, so nothing more is published"
    );
}

#[test]
fn a_backlogged_queue_needs_few_hints_because_nodes_claim_from_the_store() {
    let mut world = World::new();
    world.submit(20_000, 1);
    let mut published = 0;

    loop {
        let (ids, plan) = world.plan_with(&Published::Confirmed);
        published += ids.len();
        if !world.window.is_backlogged() {
            break;
        }

        let next_in = plan.next_in.unwrap();
        world.pass(next_in);
        world.claim_from_store((next_in.as_secs_f64() * 8_000.0) as usize);
        assert!(world.max_hints <= MIN_TARGET);
    }

    assert!(
        world.window.target > MAX_TARGET / 2,
        "the backlog ends while hints are still useful: {}",
        world.window.target
    );
    assert!(published < 2_000, "{published} hints for 20,000 tasks");
}

#[test]
fn the_window_shrinks_when_the_nodes_become_slow() {
    let mut world = World::new();
    world.submit(100_000, 1);
    for _ in 0..30 {
        world.plan();
        world.pass(TICK);
        world.claim_from_store(600);
    }

    let fast = world.window.target;
    for _ in 0..100 {
        world.pass(TICK);
        world.claim_hinted(2);
        world.plan();
    }

    assert_eq!((fast, world.window.target), (MAX_TARGET, MIN_TARGET));
    assert_eq!(world.max_hints, MIN_TARGET);
}

#[test]
fn a_new_task_gets_no_hint_while_that_of_its_submitter_is_under_way() {
    let mut world = World::new();
    world.submit(3, 1);
    assert_eq!(world.plan(), [], "the submitter publishes a hint");
    assert!(!world.window.is_backlogged());
    world.pass(TICK);
    assert_eq!(world.plan().len(), 3, "no hint arrived");
    world.pass(TICK);
    assert_eq!(world.plan(), []);
}

#[test]
fn no_hint_is_published_while_there_are_as_many_as_tasks() {
    let mut world = World::new();
    world.submit(3, 1);
    world.hints = world.waiting.iter().map(|hint| hint.task_id).collect();
    for _ in 0..100 {
        world.pass(TICK);
        assert_eq!(world.plan(), []);
    }
}

#[test]
fn a_lost_hint_is_published_again_less_and_less_often() {
    let mut world = World::new();
    world.submit(1, 1);
    let mut moments = Vec::new();
    let start = world.now;
    while world.now < start + Duration::from_secs(130) {
        if !world.plan().is_empty() {
            moments.push(world.now.duration_since(start).as_secs());
        }
        world.hints.clear();
        world.pass(TICK);
    }

    assert_eq!(moments, [0, 2, 6, 14, 30, 60, 90, 120]);
}

#[test]
fn tasks_that_no_node_claims_do_not_hide_those_behind_them() {
    let mut world = World::new();
    world.submit(500, 9);
    world.submit(10, 1);
    let mut last = None;

    for _ in 0..2_000 {
        last = world.plan().last().copied().or(last);
        // All hints are consumed, and no node knows the type of the first tasks.
        let ends = world
            .waiting
            .iter()
            .filter(|hint| hint.priority == 1 && world.hints.contains(&hint.task_id));
        let ended: Vec<TaskId> = ends.map(|hint| hint.task_id).collect();

        world.waiting.retain(|hint| !ended.contains(&hint.task_id));
        world.hints.clear();
        world.pass(TICK);
    }

    assert_eq!(world.waiting.len(), 500);
}

#[test]
fn an_urgent_task_gets_a_hint_although_the_window_is_full() {
    let mut world = World::new();
    world.submit(1_000, 1);
    world.plan();
    world.pass(TICK);
    world.submit(1, 9);
    let urgent = world.waiting[0].task_id;
    assert_eq!(world.plan(), [urgent]);
}

#[test]
fn a_flood_of_urgent_tasks_is_bounded_too() {
    let mut world = World::new();
    world.submit(1_000, 1);
    world.plan();
    world.submit(10_000, 9);
    for _ in 0..50 {
        world.pass(TICK);
        world.plan();
    }

    assert_eq!(world.max_hints, 2 * MIN_TARGET);
}

#[test]
fn a_task_whose_hint_is_refused_too_often_is_given_up() {
    let mut world = World::new();
    world.submit(1, 1);
    let refused = Published::Refused("no queue takes it".to_owned());
    let mut tries = 0;

    for _ in 0..1_000 {
        world.pass(TICK);
        tries += world.plan_with(&refused).0.len();
        let given_up = world.window.take_given_up();
        if !given_up.is_empty() {
            assert_eq!(
                (given_up, tries),
                (vec![world.waiting[0].task_id], MAX_REFUSALS as usize)
            );
            return;
        }
    }

    panic!("{tries} refusals are not enough");
}

#[test]
fn unknown_outcomes_never_give_up_a_task() {
    let mut world = World::new();
    world.submit(1, 1);
    for _ in 0..1_000 {
        world.pass(TICK);
        world.plan_with(&Published::Unknown("gone".to_owned()));
        assert_eq!(world.window.take_given_up(), []);
    }

    assert_eq!(world.plan().len(), 1);
}

#[test]
fn a_backlog_ends_when_little_is_left() {
    let mut world = World::new();
    world.submit(100, 1);
    world.plan();
    assert!(world.window.is_backlogged());
    world.claim_hinted(40);
    world.plan();
    assert!(world.window.is_backlogged());
    world.pass(TICK);
    world.claim_hinted(50);

    world.plan();
    assert!(!world.window.is_backlogged());
}
