//! Turns key presses into actions and changes of the model. Nothing here calls the server.

use longhaul_api::client::TaskId;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Focus, Model};

/// The most letters of a filter: no name is longer.
const FILTER_CHARS: usize = 100;

/// What a key press asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    None,
    Leave,
    Pause(String),
    Resume(String),
    Cancel(TaskId),
}

pub fn press(model: &mut Model, event: &Event) -> Action {
    let Event::Key(key) = event else {
        return Action::None;
    };
    if key.kind == KeyEventKind::Release {
        return Action::None;
    }

    model.note.clear();
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return Action::Leave;
    }
    if model.is_typing {
        type_filter(model, key);
        return Action::None;
    }

    if let Some(id) = model.cancelling.take() {
        return if key.code == KeyCode::Char('y') {
            Action::Cancel(id)
        } else {
            Action::None
        };
    }

    plain(model, key.code)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other keys do nothing")]
fn plain(model: &mut Model, code: KeyCode) -> Action {
    match code {
        KeyCode::Char('q') => return Action::Leave,
        KeyCode::Esc => model.filter.clear(),
        KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
            model.focus = if model.focus == Focus::Queues {
                Focus::Tasks
            } else {
                Focus::Queues
            };
        }
        KeyCode::Up | KeyCode::Char('k') => step(model, |index| index.saturating_sub(1)),
        KeyCode::Down | KeyCode::Char('j') => step(model, |index| index.saturating_add(1)),
        KeyCode::Char('/') => model.is_typing = true,
        KeyCode::Char('p') => return pause_or_resume(model),
        KeyCode::Char('c') => ask_to_cancel(model),
        _ => {}
    }

    Action::None
}

fn pause_or_resume(model: &Model) -> Action {
    match model.queues.get(model.chosen_queue) {
        Some(queue) if queue.paused => Action::Resume(queue.name.clone()),
        Some(queue) => Action::Pause(queue.name.clone()),
        None => Action::None,
    }
}

fn ask_to_cancel(model: &mut Model) {
    let tasks = model.tasks();
    match tasks.get(model.chosen_task).map(|task| task.task_id) {
        Some(id) if model.focus == Focus::Tasks => model.cancelling = Some(id),
        _ => model.note = "choose a running task first: Tab, then the arrows".to_owned(),
    }
}

fn step(model: &mut Model, next: impl Fn(usize) -> usize) {
    let tasks = model.tasks().len();
    let queues = model.queues.len();

    match model.focus {
        Focus::Queues => {
            model.chosen_queue = next(model.chosen_queue).min(queues.saturating_sub(1))
        }
        Focus::Tasks => model.chosen_task = next(model.chosen_task).min(tasks.saturating_sub(1)),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other keys do nothing")]
fn type_filter(model: &mut Model, key: &KeyEvent) {
    match key.code {
        KeyCode::Enter => model.is_typing = false,
        KeyCode::Esc => {
            model.is_typing = false;
            model.filter.clear();
        }
        KeyCode::Backspace => {
            model.filter.pop();
        }
        KeyCode::Char(letter) if model.filter.chars().count() < FILTER_CHARS => {
            model.filter.push(letter)
        }
        _ => {}
    }

    model.chosen_task = 0;
}
