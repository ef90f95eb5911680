use longhaul_testkit::names::queue_name;

use super::*;

fn plan(
    queues: &[(&str, usize, Option<usize>)],
    types: &[(&str, Option<usize>, &[&str])],
) -> SlotPlan {
    let queue = |(name, reserved, at_most): &(&str, usize, Option<usize>)| ServedQueue {
        name: queue_name(name),
        reserved: *reserved,
        at_most: *at_most,
        share: 1,
    };

    let kind = |(name, at_most, resources): &(&str, Option<usize>, &[&str])| TypeSlots {
        name: (*name).to_owned(),
        at_most: *at_most,
        resources: resources.iter().map(|name| (*name).to_owned()).collect(),
    };

    SlotPlan {
        total: 10,
        queues: queues.iter().map(queue).collect(),
        types: types.iter().map(kind).collect(),
        resources: HashMap::from([("gpu".to_owned(), 2)]),
    }
}

fn run(slots: &mut Slots, queue: &str, task_type: &str, count: usize) {
    *slots.by_queue.entry(queue.to_owned()).or_default() += count;
    *slots.by_type.entry(task_type.to_owned()).or_default() += count;
}

#[test]
fn a_reserved_slot_is_used_until_it_is_freed() {
    let mut slots = Slots::new(plan(&[("a", 0, None)], &[("t", Some(1), &[])]));
    assert!(!slots.reserve("a", "unknown") && !slots.reserve("unknown", "t"));
    assert_eq!(slots.room_for("unknown", "t"), Room::NotServed);
    assert!(slots.reserve("a", "t"));
    assert!(
        !slots.reserve("a", "t"),
        "the type's limit counts reserved slots"
    );
    assert_eq!(slots.room(&slots.scopes()[0].clone()), 0);
    slots.free("a", "t");

    assert!(slots.reserve("a", "t"));
}

#[test]
fn a_plain_node_asks_once_for_everything() {
    let mut slots = Slots::new(plan(
        &[("a", 0, None), ("b", 0, None)],
        &[("t", None, &[]), ("u", None, &[])],
    ));
    assert_eq!(slots.scopes().len(), 1);
    assert_eq!(slots.room(&slots.scopes()[0]), 10);
    run(&mut slots, "a", "t", 7);
    assert_eq!(slots.room(&slots.scopes()[0]), 3);
    slots.free("a", "t");

    assert_eq!(slots.room(&slots.scopes()[0]), 4);
}

#[test]
fn a_flood_of_one_queue_leaves_the_reserved_slots_of_others() {
    let mut slots = Slots::new(plan(
        &[("vip", 4, None), ("free", 0, None)],
        &[("t", None, &[])],
    ));
    let shared = slots
        .scopes()
        .iter()
        .find(|scope| scope.kind == ScopeKind::Shared)
        .cloned()
        .unwrap();

    let own = slots
        .scopes()
        .iter()
        .find(|scope| scope.kind == ScopeKind::Reserved)
        .cloned()
        .unwrap();

    assert_eq!((slots.room(&own), slots.room(&shared)), (4, 6));
    run(&mut slots, "free", "t", 6);
    assert_eq!((slots.room(&own), slots.room(&shared)), (4, 0));
    run(&mut slots, "vip", "t", 4);
    assert_eq!((slots.room(&own), slots.room(&shared)), (0, 0));
}

#[test]
fn a_queue_has_its_reserved_room_and_the_shared_one() {
    let mut slots = Slots::new(plan(
        &[("vip", 4, None), ("free", 0, Some(5))],
        &[("t", None, &[])],
    ));

    assert_eq!(
        (
            slots.room_in_queue("vip"),
            slots.room_in_queue("free"),
            slots.room_in_queue("x")
        ),
        (10, 5, 0)
    );

    run(&mut slots, "free", "t", 5);
    assert_eq!(
        (slots.room_in_queue("vip"), slots.room_in_queue("free")),
        (5, 0)
    );
    run(&mut slots, "vip", "t", 5);
    assert_eq!(slots.room_in_queue("vip"), 0);
}

#[test]
fn a_full_type_takes_no_room_from_other_types_of_its_queue() {
    let mut slots = Slots::new(plan(
        &[("a", 0, None)],
        &[("mail", Some(1), &[]), ("text", None, &[])],
    ));
    run(&mut slots, "a", "mail", 1);
    assert_eq!(slots.room_in_queue("a"), 9);
    assert_eq!(
        (slots.room_for("a", "mail"), slots.room_for("a", "text")),
        (Room::Full, Room::Free)
    );
}

#[test]
fn a_queue_that_uses_less_than_its_fair_share_goes_before_a_flood() {
    let mut plan = plan(
        &[("vip", 1, None), ("slow", 0, Some(1)), ("free", 0, None)],
        &[("t", None, &[])],
    );
    plan.queues[0].share = 7;
    let mut slots = Slots::new(plan);

    run(&mut slots, "free", "t", 8);
    let asked = |slots: &Slots| -> Vec<(QueueName, usize)> {
        slots
            .fair_shares()
            .iter()
            .map(|scope| (scope.queues[0].clone(), slots.room(scope)))
            .collect()
    };

    let of = |name: &str, room| (queue_name(name), room);
    // Nine slots are shared, and one of them is free. The fair shares are 7, 1 and 1 of them.
    assert_eq!(asked(&slots), [of("vip", 1), of("slow", 1), of("free", 0)]);
    run(&mut slots, "vip", "t", 2);
    assert_eq!(asked(&slots), [of("slow", 0), of("vip", 0), of("free", 0)]);
    (0..3).for_each(|_| slots.free("free", "t"));
    assert_eq!(asked(&slots), [of("slow", 1), of("vip", 3), of("free", 0)]);

    // The flood may use what the others leave.
    assert_eq!(slots.room_for("free", "t"), Room::Free);
}

#[test]
fn a_single_queue_has_no_fair_share() {
    assert!(
        Slots::new(plan(&[("a", 0, None)], &[("t", None, &[])]))
            .fair_shares()
            .is_empty()
    );
}

#[test]
fn a_queue_never_exceeds_its_limit() {
    let mut slots = Slots::new(plan(
        &[("slow", 0, Some(2)), ("free", 0, None)],
        &[("t", None, &[])],
    ));
    let slow = slots
        .scopes()
        .iter()
        .find(|scope| scope.queues == ["slow"])
        .cloned()
        .unwrap();

    assert_eq!(slots.room(&slow), 2);
    run(&mut slots, "slow", "t", 2);
    assert_eq!(slots.room(&slow), 0);
}

#[test]
fn types_that_share_a_resource_share_its_limit() {
    let types: &[(&str, Option<usize>, &[&str])] = &[
        ("draw", None, &["gpu"]),
        ("film", None, &["gpu"]),
        ("text", None, &[]),
        ("mail", Some(1), &[]),
    ];

    let mut slots = Slots::new(plan(&[("a", 0, None)], types));
    let of = |slots: &Slots, name: &str| {
        let scope = slots
            .scopes()
            .iter()
            .find(|scope| scope.task_types == [name])
            .cloned()
            .unwrap();
        slots.room(&scope)
    };

    assert_eq!(
        (of(&slots, "draw"), of(&slots, "text"), of(&slots, "mail")),
        (2, 10, 1)
    );
    run(&mut slots, "a", "film", 1);
    run(&mut slots, "a", "mail", 1);
    assert_eq!(
        (of(&slots, "draw"), of(&slots, "text"), of(&slots, "mail")),
        (1, 8, 0)
    );
}
