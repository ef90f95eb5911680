use longhaul_domain::TaskIdSequence;

use super::*;

/// A queue of tasks, a broker with their bells, and the ringer that looks at both.
struct World {
    lane: Lane,
    waiting: Vec<Bell>,
    /// Bells that lie in the broker.
    bells: Vec<TaskId>,
    ids: TaskIdSequence,
    now: Instant,
    most_bells: usize,
}

impl World {
    fn new() -> Self {
        let (ids, now) = (TaskIdSequence::default(), Instant::now());
        Self {
            lane: Lane::default(),
            waiting: Vec::new(),
            bells: Vec::new(),
            ids,
            now,
            most_bells: 0,
        }
    }

    fn submit(&mut self, count: usize, priority: u8) {
        for _ in 0..count {
            let task_id = self.ids.next_id(Timestamp::from_micros(1_000_000), 1);
            self.waiting.push(bell(task_id, priority));
        }
        self.waiting.sort_by_key(place);
    }

    /// One look, whose bells all reach the broker. Answers with what was rung for.
    fn look(&mut self) -> Vec<TaskId> {
        self.look_with(&Published::Confirmed).0
    }

    fn look_with(&mut self, published: &Published) -> (Vec<TaskId>, Look) {
        let listed: Vec<Bell> = self
            .waiting
            .iter()
            .take(self.lane.window())
            .cloned()
            .collect();
        let look = self.lane.look(self.now, &listed, self.bells.len());
        let ids: Vec<TaskId> = look
            .ring
            .iter()
            .map(|index| listed[*index].task_id)
            .collect();
        for id in &ids {
            self.lane.published(self.now, *id, published);
            if published.is_confirmed() {
                self.bells.push(*id);
            }
        }
        self.most_bells = self.most_bells.max(self.bells.len());
        (ids, look)
    }

    /// Nodes answer so many bells.
    fn answer(&mut self, count: usize) {
        let answered: HashSet<TaskId> = self.bells.drain(..count.min(self.bells.len())).collect();
        self.waiting
            .retain(|bell| !answered.contains(&bell.task_id));
    }

    /// Nodes take so many from the store; the bells of those are answered with nothing.
    fn take(&mut self, count: usize) {
        let taken: HashSet<TaskId> = self
            .waiting
            .drain(..count.min(self.waiting.len()))
            .map(|bell| bell.task_id)
            .collect();
        self.bells.retain(|id| !taken.contains(id));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

fn bell(task_id: TaskId, priority: u8) -> Bell {
    let moment = Timestamp::from_micros(1_000_000);
    Bell {
        task_id,
        owner: "ann".to_owned(),
        task_type: "t".to_owned(),
        queue: "q".to_owned(),
        priority,
        retry_count: 0,
        submitted_at: moment,
        due_at: moment,
        looks: 0,
        correlation_id: None,
        trace_context: None,
    }
}

const LOOK: Duration = Duration::from_millis(200);

#[test]
fn a_deep_backlog_has_few_bells_out_and_the_first_come_first() {
    let mut world = World::new();
    world.submit(20_000, 1);
    let rung = world.look();
    let first: Vec<TaskId> = world
        .waiting
        .iter()
        .take(LEAST)
        .map(|bell| bell.task_id)
        .collect();
    assert_eq!(rung, first);
    assert!(world.lane.is_held());
    for _ in 0..100 {
        world.pass(LOOK);
        world.look();
    }
    assert_eq!(
        world.most_bells, LEAST,
        "nobody answers, so nothing more is rung"
    );
}

#[test]
fn a_held_queue_needs_few_bells_since_nodes_take_from_the_store() {
    let mut world = World::new();
    world.submit(20_000, 1);
    let mut rung = 0;
    loop {
        let (ids, look) = world.look_with(&Published::Confirmed);
        rung += ids.len();
        if !world.lane.is_held() {
            break;
        }
        let next_in = look.next_in.unwrap();
        world.pass(next_in);
        world.take((next_in.as_secs_f64() * 8_000.0) as usize);
        assert!(world.most_bells <= LEAST);
    }
    assert!(
        world.lane.target > MOST / 2,
        "it opens while there is still work for bells: {}",
        world.lane.target
    );
    assert!(rung < 2_000, "{rung} bells for 20,000 tasks");
}

#[test]
fn a_fleet_that_becomes_slow_finds_fewer_bells_out() {
    let mut world = World::new();
    world.submit(100_000, 1);
    for _ in 0..30 {
        world.look();
        world.pass(LOOK);
        world.take(600);
    }
    let fast = world.lane.target;
    for _ in 0..100 {
        world.pass(LOOK);
        world.answer(2);
        world.look();
    }
    assert_eq!((fast, world.lane.target), (MOST, LEAST));
    assert_eq!(world.most_bells, LEAST);
}

#[test]
fn what_its_submitter_rings_for_is_left_alone_for_a_moment() {
    let mut world = World::new();
    world.submit(3, 1);
    assert_eq!(world.look(), [], "a bell is under way");
    assert!(!world.lane.is_held());
    world.pass(LOOK);
    assert_eq!(world.look().len(), 3, "and did not come");
    world.pass(LOOK);
    assert_eq!(world.look(), []);
}

#[test]
fn as_many_bells_as_tasks_means_that_none_is_missing() {
    let mut world = World::new();
    world.submit(3, 1);
    world.bells = world.waiting.iter().map(|bell| bell.task_id).collect();
    for _ in 0..100 {
        world.pass(LOOK);
        assert_eq!(world.look(), []);
    }
}

#[test]
fn a_bell_that_is_lost_is_rung_again_and_less_and_less_often() {
    let mut world = World::new();
    world.submit(1, 1);
    let mut moments = Vec::new();
    let start = world.now;
    while world.now < start + Duration::from_secs(130) {
        if !world.look().is_empty() {
            moments.push(world.now.duration_since(start).as_secs());
        }
        world.bells.clear();
        world.pass(LOOK);
    }
    assert_eq!(moments, [0, 2, 6, 14, 30, 60, 90, 120]);
}

#[test]
fn tasks_that_nobody_answers_for_do_not_hide_those_behind_them() {
    let mut world = World::new();
    world.submit(500, 9);
    world.submit(10, 1);
    let mut last = None;
    for _ in 0..2_000 {
        last = world.look().last().copied().or(last);
        // The bells are heard, and no node knows the type of the first ones.
        let ends = world
            .waiting
            .iter()
            .filter(|bell| bell.priority == 1 && world.bells.contains(&bell.task_id));
        let ended: Vec<TaskId> = ends.map(|bell| bell.task_id).collect();
        world.waiting.retain(|bell| !ended.contains(&bell.task_id));
        world.bells.clear();
        world.pass(LOOK);
    }
    assert_eq!(world.waiting.len(), 500);
}

#[test]
fn an_urgent_task_is_rung_for_although_the_lane_is_full() {
    let mut world = World::new();
    world.submit(1_000, 1);
    world.look();
    world.pass(LOOK);
    world.submit(1, 9);
    let urgent = world.waiting[0].task_id;
    assert_eq!(world.look(), [urgent]);
}

#[test]
fn a_flood_of_urgent_tasks_is_bounded_too() {
    let mut world = World::new();
    world.submit(1_000, 1);
    world.look();
    world.submit(10_000, 9);
    for _ in 0..50 {
        world.pass(LOOK);
        world.look();
    }
    assert_eq!(world.most_bells, 2 * LEAST);
}

#[test]
fn a_task_whose_bell_is_refused_again_and_again_is_given_up() {
    let mut world = World::new();
    world.submit(1, 1);
    let refused = Published::Refused("no queue takes it".to_owned());
    let mut tries = 0;
    for _ in 0..1_000 {
        world.pass(LOOK);
        tries += world.look_with(&refused).0.len();
        let given_up = world.lane.given_up();
        if !given_up.is_empty() {
            assert_eq!(
                (given_up, tries),
                (vec![world.waiting[0].task_id], REFUSALS as usize)
            );
            return;
        }
    }
    panic!("{tries} refusals are not enough");
}

#[test]
fn a_broker_that_does_not_answer_never_costs_a_task() {
    let mut world = World::new();
    world.submit(1, 1);
    for _ in 0..1_000 {
        world.pass(LOOK);
        world.look_with(&Published::Unknown("gone".to_owned()));
        assert_eq!(world.lane.given_up(), []);
    }
    assert_eq!(world.look().len(), 1);
}

#[test]
fn a_queue_opens_again_when_little_is_left() {
    let mut world = World::new();
    world.submit(100, 1);
    world.look();
    assert!(world.lane.is_held());
    world.answer(40);
    world.look();
    assert!(world.lane.is_held());
    world.pass(LOOK);
    world.answer(50);
    world.look();
    assert!(!world.lane.is_held());
}
