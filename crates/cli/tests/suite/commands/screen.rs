//! `top` on a screen of a given size, with given data.

use crate::trial::plain;
use libtest_mimic::Trial;
use longhaul_api::{Moment, NodeView, QueueView, TaskSummary};
use longhaul_cli::commands::top::{
    keys::{Action, press as press_key},
    model::{Focus, Model, Snapshot},
    view,
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers},
};
use serde_json::{Value, json};

pub(crate) fn trials() -> Vec<Trial> {
    plain![
        the_screen_shows_queues_nodes_tasks_and_rates,
        rates_are_between_two_snapshots_and_never_negative,
        an_empty_screen_says_what_to_do,
        any_screen_size_is_drawn,
        the_chosen_queue_is_paused_or_resumed,
        a_cancel_needs_a_confirmation,
        a_filter_shows_tasks_that_contain_its_text,
        q_and_control_c_leave,
        names_fit_on_a_usual_and_on_a_narrow_terminal,
        the_result_of_an_action_stays_until_the_next_key
    ]
}

const NOW: &str = "2026-03-01T08:30:00Z";

fn moment(text: &str) -> Moment {
    text.parse().unwrap()
}

fn task(number: u32, task_type: &str, progress: Value) -> TaskSummary {
    let at = "2026-03-01T08:28:40Z";
    let document = json!({
        "taskId": format!("01900000-0000-7000-8000-{number:012}"), "userId": "u-1",
        "taskType": task_type, "status": "RUNNING", "queue": "free_default", "tier": null,
        "taskKey": null, "correlationId": null, "parentTaskId": null, "priority": 1,
        "attempt": 1, "maxAttempts": 5, "retryCount": 0, "progress": progress,
        "errorMessage": null,
        "children": {
            "total": 0, "open": 0, "completed": 0, "withErrors": 0, "failed": 0, "cancelled": 0
        },
        "createdAt": at, "updatedAt": at, "runAt": at, "nextAttemptAt": null,
        "startedAt": at, "finishedAt": null, "version": 3
    });

    serde_json::from_value(document).unwrap()
}

fn queue(name: &str, paused: bool, tasks: Value) -> QueueView {
    serde_json::from_value(
        json!({ "name": name, "paused": paused, "pausedAt": null, "tasks": tasks }),
    )
    .unwrap()
}

fn node(name: &str, lost_at: Option<&str>) -> NodeView {
    let at = "2026-03-01T06:30:00Z";
    let document = json!({
        "nodeId": "01900000-0000-7000-8000-000000000000", "name": name, "host": "host-1",
        "startedAt": at, "heartbeatAt": at, "lostAt": lost_at
    });
    serde_json::from_value(document).unwrap()
}

fn snapshot(completed: i64) -> Snapshot {
    Snapshot {
        running: vec![
            task(
                1,
                "sample.progress",
                json!({ "percent": 30, "message": "step 3 of 10" }),
            ),
            task(
                2,
                &"long.name.".repeat(30),
                json!({ "percent": 1e9, "message": "\u{1b}[31mred" }),
            ),
            task(3, "sample.sleep", Value::Null),
        ],
        queues: vec![
            queue(
                "free_default",
                false,
                json!({ "QUEUED": 12, "RUNNING": 3, "COMPLETED": completed, "DEAD_LETTER": 2 }),
            ),
            queue("vip_short", true, json!({ "RETRYING": 4 })),
        ],
        nodes: vec![node("old", Some("2026-03-01T08:00:00Z")), node("dev", None)],
        refusal: None,
        now: moment(NOW),
    }
}

fn model() -> Model {
    let mut model = Model::new("http://127.0.0.1:7080", false);
    model.apply(snapshot(100), 0.0);
    model
}

fn drawn(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap();
    terminal.backend().to_string()
}

fn press(model: &mut Model, code: KeyCode) -> Action {
    press_key(model, &Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn the_screen_shows_queues_nodes_tasks_and_rates() {
    let mut model = model();
    model.apply(snapshot(150), 2.0);
    let screen = drawn(&model, 140, 30);

    for part in [
        "3 running   12 waiting   4 retrying   2 failed   25/s",
        "free_default",
        "25.0",
        "⏸ vip_short",
        "dev on host-1",
        "up 2h",
        "lost 30m ago",
        "Nodes 1 up",
        "at most 25",
        "sample.progress",
        "━━━━────────   30%",
        "━━━━━━━━━━━━  100%",
        "step 3 of 10",
        "1m 20s",
        "q leave",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }

    assert!(
        !screen.contains('\u{1b}'),
        "control characters in data do not reach the terminal"
    );
}

fn rates_are_between_two_snapshots_and_never_negative() {
    let mut model = model();
    model.apply(snapshot(130), 1.5);
    model.apply(snapshot(40), 1.0);
    assert_eq!(
        model.throughput,
        [20, 0],
        "a falling total, as after retention, counts as 0; the first snapshot has no rate"
    );
}

fn an_empty_screen_says_what_to_do() {
    let mut model = Model::new("http://127.0.0.1:7080", true);
    let running = Vec::new();
    let queues = Vec::new();
    let nodes = Vec::new();

    model.apply(
        Snapshot {
            running,
            queues,
            nodes,
            refusal: Some("not for you".to_owned()),
            now: moment(NOW),
        },
        0.0,
    );

    let screen = drawn(&model, 100, 24);
    assert!(
        screen.contains("No queue yet")
            && screen.contains("longhaul submit")
            && screen.contains("not for you")
    );

    for code in [
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Char('p'),
        KeyCode::Tab,
        KeyCode::Down,
        KeyCode::Char('c'),
    ] {
        assert_eq!(press(&mut model, code), Action::None);
    }
}

fn any_screen_size_is_drawn() {
    for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
        drawn(&model(), width, height);
    }
}

fn the_chosen_queue_is_paused_or_resumed() {
    let mut model = model();
    assert_eq!(
        press(&mut model, KeyCode::Char('p')),
        Action::Pause("free_default".to_owned())
    );

    for _ in 0..5 {
        press(&mut model, KeyCode::Down);
    }

    assert_eq!(
        press(&mut model, KeyCode::Char('p')),
        Action::Resume("vip_short".to_owned())
    );
}

fn a_cancel_needs_a_confirmation() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('c')), Action::None);
    assert_eq!(
        model.cancelling, None,
        "no task is chosen while the queues have the focus"
    );
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Down);
    let second = model.tasks()[1].task_id;

    assert_eq!(press(&mut model, KeyCode::Char('c')), Action::None);
    assert!(drawn(&model, 140, 30).contains(&format!("Cancel {second}")));
    assert_eq!(press(&mut model, KeyCode::Char('n')), Action::None);
    press(&mut model, KeyCode::Char('c'));
    assert_eq!(
        press(&mut model, KeyCode::Char('y')),
        Action::Cancel(second)
    );
}

fn a_filter_shows_tasks_that_contain_its_text() {
    let mut model = model();
    press(&mut model, KeyCode::Char('/'));
    for letter in "SLEEPq".chars() {
        assert_eq!(
            press(&mut model, KeyCode::Char(letter)),
            Action::None,
            "q is a letter while typing"
        );
    }

    press(&mut model, KeyCode::Backspace);
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.tasks().len(), 1);
    assert!(drawn(&model, 140, 30).contains("Running 1 with \"SLEEP\""));
    press(&mut model, KeyCode::Esc);
    assert_eq!((model.tasks().len(), model.focus), (3, Focus::Queues));
}

fn q_and_control_c_leave() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('q')), Action::Leave);
    model.is_typing = true;
    let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(press_key(&mut model, &control_c), Action::Leave);
}

fn names_fit_on_a_usual_and_on_a_narrow_terminal() {
    let screen = drawn(&model(), 80, 24);
    for part in [
        "free_default",
        "vip_short",
        "sample.progress",
        "30%",
        "000000000001",
        "4 retrying",
        "0/s",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }

    let screen = drawn(&model(), 40, 16);
    for part in ["free_defa", "vip_short", "sample.progress", "30%"] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
}

fn the_result_of_an_action_stays_until_the_next_key() {
    let mut model = model();
    model.note = "vip_short is open".to_owned();
    model.apply(snapshot(130), 1.0);
    assert!(
        drawn(&model, 80, 24).contains("vip_short is open"),
        "a snapshot does not clear it"
    );
    model.failure = "no server answers".to_owned();
    assert!(
        drawn(&model, 80, 24).contains("no server answers"),
        "a failure is shown before a note"
    );

    model.apply(snapshot(130), 1.0);
    press(&mut model, KeyCode::Down);
    assert!(drawn(&model, 80, 24).contains("q leave"));
}
