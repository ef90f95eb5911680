//! What is typed, turned into what is wanted. Nothing is done here.

use longhaul_api::client::TaskId;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Focus, Model};

/// Letters of a filter: no name is longer.
const FILTER_CHARS: usize = 100;

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Leave,
    Pause(String),
    Resume(String),
    Cancel(TaskId),
}

pub fn typed(model: &mut Model, event: &Event) -> Wish {
    let Event::Key(key) = event else {
        return Wish::Nothing;
    };
    if key.kind == KeyEventKind::Release {
        return Wish::Nothing;
    }
    model.note.clear();
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return Wish::Leave;
    }
    if model.is_typing {
        type_filter(model, key);
        return Wish::Nothing;
    }
    if let Some(id) = model.cancelling.take() {
        return if key.code == KeyCode::Char('y') {
            Wish::Cancel(id)
        } else {
            Wish::Nothing
        };
    }
    plain(model, key.code)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a keyboard has many keys, and the others do nothing"
)]
fn plain(model: &mut Model, code: KeyCode) -> Wish {
    match code {
        KeyCode::Char('q') => return Wish::Leave,
        KeyCode::Esc => model.filter.clear(),
        KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
            model.focus = if model.focus == Focus::Queues {
                Focus::Tasks
            } else {
                Focus::Queues
            };
        }
        KeyCode::Up | KeyCode::Char('k') => step(model, |place| place.saturating_sub(1)),
        KeyCode::Down | KeyCode::Char('j') => step(model, |place| place.saturating_add(1)),
        KeyCode::Char('/') => model.is_typing = true,
        KeyCode::Char('p') => {
            let Some(queue) = model.queues.get(model.chosen_queue) else {
                return Wish::Nothing;
            };
            let name = queue.name.clone();
            return if queue.paused {
                Wish::Resume(name)
            } else {
                Wish::Pause(name)
            };
        }
        KeyCode::Char('c') => {
            let chosen = model
                .tasks()
                .get(model.chosen_task)
                .map(|task| task.task_id);
            model.cancelling = chosen.filter(|_| model.focus == Focus::Tasks);
            if model.cancelling.is_none() {
                model.note = "choose a running task first: Tab, then the arrows".to_owned();
            }
        }
        _ => {}
    }
    Wish::Nothing
}

fn step(model: &mut Model, next: impl Fn(usize) -> usize) {
    let (tasks, queues) = (model.tasks().len(), model.queues.len());
    match model.focus {
        Focus::Queues => {
            model.chosen_queue = next(model.chosen_queue).min(queues.saturating_sub(1))
        }
        Focus::Tasks => model.chosen_task = next(model.chosen_task).min(tasks.saturating_sub(1)),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a keyboard has many keys, and the others do nothing"
)]
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
