//! `top` on a screen of given size, with given data.

use crate::trial::plain;
use libtest_mimic::Trial;
use longhaul_api::{Moment, NodeView, QueueView, TaskSummary};
use longhaul_cli::commands::top::{
    keys::{Wish, typed},
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
        everything_is_on_the_screen,
        rates_are_of_the_time_between_two_looks_and_never_negative,
        an_empty_server_says_what_to_do,
        no_screen_is_too_small,
        the_chosen_queue_is_paused_or_resumed,
        a_cancel_is_asked_about_first,
        a_filter_shows_what_holds_the_word,
        q_and_control_c_leave,
        names_have_room_on_the_usual_terminal_and_on_a_narrow_one,
        the_answer_to_a_key_stays_until_the_next_one
    ]
}

const NOW: &str = "2026-03-01T08:30:00Z";

fn moment(text: &str) -> Moment {
    text.parse().unwrap()
}

fn task(number: u32, task_type: &str, progress: Value) -> TaskSummary {
    let at = "2026-03-01T08:28:40Z";
    let document = json!({
        "taskId": format!("01900000-0000-7000-8000-{number:012}"), "userId": "u-1", "taskType": task_type,
        "status": "RUNNING", "queue": "free_default", "tier": null, "taskKey": null, "correlationId": null,
        "parentTaskId": null, "priority": 1, "attempt": 1, "maxAttempts": 5, "retryCount": 0, "progress": progress,
        "errorMessage": null,
        "children": { "total": 0, "open": 0, "completed": 0, "withErrors": 0, "failed": 0, "cancelled": 0 },
        "createdAt": at, "updatedAt": at, "runAt": at, "nextAttemptAt": null, "startedAt": at, "finishedAt": null,
        "version": 3
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
        "nodeId": "01900000-0000-7000-8000-000000000000", "name": name, "host": "host-1", "startedAt": at,
        "heartbeatAt": at, "lostAt": lost_at
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
    model.see(snapshot(100), 0.0);
    model
}

fn drawn(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model)).unwrap();
    terminal.backend().to_string()
}

fn press(model: &mut Model, code: KeyCode) -> Wish {
    typed(model, &Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn everything_is_on_the_screen() {
    let mut model = model();
    model.see(snapshot(150), 2.0);
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
        "texts of others do not steer the terminal"
    );
}

fn rates_are_of_the_time_between_two_looks_and_never_negative() {
    let mut model = model();
    model.see(snapshot(130), 1.5);
    model.see(snapshot(40), 1.0);
    assert_eq!(
        model.throughput,
        [20, 0],
        "retention has removed some; the first look has no rate"
    );
}

fn an_empty_server_says_what_to_do() {
    let mut model = Model::new("http://127.0.0.1:7080", true);
    let (running, queues, nodes) = (Vec::new(), Vec::new(), Vec::new());
    model.see(
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
        assert_eq!(press(&mut model, code), Wish::Nothing);
    }
}

fn no_screen_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
        drawn(&model(), width, height);
    }
}

fn the_chosen_queue_is_paused_or_resumed() {
    let mut model = model();
    assert_eq!(
        press(&mut model, KeyCode::Char('p')),
        Wish::Pause("free_default".to_owned())
    );
    for _ in 0..5 {
        press(&mut model, KeyCode::Down);
    }
    assert_eq!(
        press(&mut model, KeyCode::Char('p')),
        Wish::Resume("vip_short".to_owned())
    );
}

fn a_cancel_is_asked_about_first() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('c')), Wish::Nothing);
    assert_eq!(model.cancelling, None, "no task is chosen while queues are");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Down);
    let second = model.tasks()[1].task_id;
    assert_eq!(press(&mut model, KeyCode::Char('c')), Wish::Nothing);
    assert!(drawn(&model, 140, 30).contains(&format!("Cancel {second}")));
    assert_eq!(press(&mut model, KeyCode::Char('n')), Wish::Nothing);
    press(&mut model, KeyCode::Char('c'));
    assert_eq!(press(&mut model, KeyCode::Char('y')), Wish::Cancel(second));
}

fn a_filter_shows_what_holds_the_word() {
    let mut model = model();
    press(&mut model, KeyCode::Char('/'));
    for letter in "SLEEPq".chars() {
        assert_eq!(
            press(&mut model, KeyCode::Char(letter)),
            Wish::Nothing,
            "q is a letter while one types"
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
    assert_eq!(press(&mut model, KeyCode::Char('q')), Wish::Leave);
    model.is_typing = true;
    let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(typed(&mut model, &control_c), Wish::Leave);
}

fn names_have_room_on_the_usual_terminal_and_on_a_narrow_one() {
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

fn the_answer_to_a_key_stays_until_the_next_one() {
    let mut model = model();
    model.note = "vip_short is open".to_owned();
    model.see(snapshot(130), 1.0);
    assert!(
        drawn(&model, 80, 24).contains("vip_short is open"),
        "a look is no reason to forget it"
    );
    model.trouble = "no server answers".to_owned();
    assert!(
        drawn(&model, 80, 24).contains("no server answers"),
        "what is shown is old, and that comes first"
    );
    model.see(snapshot(130), 1.0);
    press(&mut model, KeyCode::Down);
    assert!(drawn(&model, 80, 24).contains("q leave"));
}
