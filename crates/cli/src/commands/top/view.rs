//! Draws the screen from the model.

use longhaul_api::TaskSummary;
use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, BorderType, Cell, Paragraph, Row, Sparkline, Table, TableState},
};

use super::model::{Focus, Model, QueueRow};
use crate::client::{ProgressSummary, age, clean, cut};

/// Characters of a progress bar.
const BAR: usize = 12;
/// Below this width, only the most important columns are shown: names before numbers.
const NARROW: u16 = 110;
/// Below this width, not even a task's id has room.
const TINY: u16 = 70;

pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let queues_height = u16::try_from(model.queues.len())
        .unwrap_or(u16::MAX)
        .saturating_add(3)
        .clamp(10, 16);

    let [head, above, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(queues_height),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());

    let share = if frame.area().width < NARROW { 65 } else { 60 };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(share), Constraint::Fill(1)]).areas(above);

    let nodes_height = u16::try_from(model.nodes.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2)
        .clamp(3, 6);
    let [rates, nodes] =
        Layout::vertical([Constraint::Min(3), Constraint::Max(nodes_height)]).areas(right);

    frame.render_widget(header(model, head.width), head);
    draw_queues(frame, model, left);
    draw_throughput(frame, model, rates);
    draw_nodes(frame, model, nodes);
    draw_tasks(frame, model, below);
    frame.render_widget(footer(model), foot);
}

fn paint(model: &Model, colour: Color) -> Style {
    if model.has_colours {
        Style::new().fg(colour)
    } else {
        Style::new()
    }
}

fn faint(model: &Model) -> Style {
    paint(model, Color::DarkGray)
}

fn panel(model: &Model, title: String, is_chosen: bool) -> Block<'static> {
    let border = if is_chosen {
        paint(model, Color::Cyan)
    } else {
        faint(model)
    };
    let kind = if is_chosen {
        BorderType::Thick
    } else {
        BorderType::Rounded
    };

    Block::bordered()
        .border_type(kind)
        .border_style(border)
        .title(format!(" {title} "))
}

fn header(model: &Model, width: u16) -> Paragraph<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rate = model.throughput.back().copied().unwrap_or(0);
    let url = if width < NARROW {
        String::new()
    } else {
        format!("{}  ", model.url)
    };

    let text = vec![
        Span::styled(" Longhaul ", bold),
        Span::styled(url, faint(model)),
        Span::raw(format!(
            " {} running   {} waiting   {} retrying   {} failed   {rate}/s",
            model.total(|row| row.running),
            model.total(|row| row.waiting),
            model.total(|row| row.retrying),
            model.total(|row| row.failed),
        )),
    ];

    Paragraph::new(Line::from(text))
}

fn draw_queues(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = panel(
        model,
        format!("Queues {}", model.queues.len()),
        model.focus == Focus::Queues,
    );

    if model.queues.is_empty() {
        let text = "No queue yet: the first task makes one.";
        frame.render_widget(Paragraph::new(text).style(faint(model)).block(block), area);
        return;
    }

    let columns = queue_columns(frame.area().width);
    let rows = model.queues.iter().map(|row| {
        let mut cells = queue_cells(model, row);
        let shown = columns
            .iter()
            .map(|index| std::mem::take(&mut cells[*index]));
        Row::new(shown.collect::<Vec<_>>())
    });

    let all = [
        "QUEUE", "WAITING", "RUNNING", "RETRYING", "FAILED", "ENDED/S",
    ];
    let header: Vec<&str> = columns.iter().map(|index| all[*index]).collect();
    let width = |index: &usize| {
        if *index == 0 {
            Constraint::Fill(1)
        } else {
            Constraint::Length(8)
        }
    };
    let widths: Vec<Constraint> = columns.iter().map(width).collect();

    let table = table(model, rows, &widths, &header, 1).block(block);
    let chosen = (model.focus == Focus::Queues).then_some(model.chosen_queue);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
}

/// The columns, by index, that fit beside the names.
const fn queue_columns(width: u16) -> &'static [usize] {
    match width {
        0..TINY => &[0, 1],
        TINY..NARROW => &[0, 1, 2, 4],
        NARROW.. => &[0, 1, 2, 3, 4, 5],
    }
}

fn queue_cells(model: &Model, row: &QueueRow) -> [Cell<'static>; 6] {
    let number = |count: i64| Cell::new(Line::from(count.to_string()).alignment(Alignment::Right));
    let name = if row.paused {
        format!("⏸ {}", clean(&row.name))
    } else {
        clean(&row.name)
    };
    let failed = if row.failed > 0 {
        paint(model, Color::Red)
    } else {
        Style::new()
    };

    [
        Cell::new(name).style(if row.paused {
            paint(model, Color::Yellow)
        } else {
            Style::new()
        }),
        number(row.waiting),
        number(row.running),
        number(row.retrying),
        number(row.failed).style(failed),
        Cell::new(Line::from(format!("{:.1}", row.rate)).alignment(Alignment::Right)),
    ]
}

fn draw_throughput(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let width = usize::from(area.width.saturating_sub(2));
    let skipped = model.throughput.len().saturating_sub(width);
    let samples: Vec<u64> = model.throughput.iter().skip(skipped).copied().collect();
    let most = samples.iter().copied().max().unwrap_or(0);
    let title = if width < 36 {
        "Ended/s"
    } else {
        "Ended per second"
    };

    let block = panel(model, format!("{title}, at most {most}"), false);
    let line = Sparkline::default()
        .data(&samples)
        .style(paint(model, Color::Green))
        .block(block);

    frame.render_widget(line, area);
}

fn draw_nodes(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let alive = model
        .nodes
        .iter()
        .filter(|node| node.lost_at.is_none())
        .count();

    let rows = model.nodes.iter().map(|node| {
        let (state, colour) = if let Some(lost) = node.lost_at {
            (format!("lost {} ago", age(lost, model.now)), Color::Red)
        } else {
            (
                format!("up {}", age(node.started_at, model.now)),
                Color::Green,
            )
        };

        let name = format!("{} on {}", clean(&node.name), clean(&node.host));
        Row::new([
            Cell::new(name),
            Cell::new(state).style(paint(model, colour)),
        ])
    });

    let title = format!("Nodes {alive} up");
    let table = Table::new(rows, [Constraint::Fill(1), Constraint::Length(14)])
        .block(panel(model, title, false));
    frame.render_widget(table, area);
}

fn draw_tasks(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let tasks = model.tasks();
    let mut title = format!("Running {}", tasks.len());
    if model.is_typing || !model.filter.is_empty() {
        title += &format!(" with {:?}", model.filter);
    }

    let block = panel(model, title, model.focus == Focus::Tasks);
    if tasks.is_empty() {
        let text = if model.filter.is_empty() {
            "Nothing runs. Try: longhaul submit sample.progress '{\"steps\":100,\"stepMs\":200}'"
        } else {
            "No running task contains this text. Esc shows all."
        };
        frame.render_widget(Paragraph::new(text).style(faint(model)).block(block), area);
        return;
    }

    let columns = task_columns(area.width);
    let rows = tasks
        .iter()
        .map(|task| Row::new(columns.iter().map(|column| column.cell(model, task))));
    let widths: Vec<Constraint> = columns.iter().map(|column| column.width()).collect();
    let header: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    let table = table(model, rows, &widths, &header, usize::MAX).block(block);
    let chosen = (model.focus == Focus::Tasks).then_some(model.chosen_task);

    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(chosen));
}

/// A column of the table of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Type,
    Queue,
    Try,
    For,
    Progress,
    Message,
}

/// The columns that fit.
const fn task_columns(width: u16) -> &'static [Column] {
    match width {
        0..TINY => &[Column::Type, Column::Progress],
        TINY..NARROW => &[Column::Id, Column::Type, Column::Try, Column::Progress],
        NARROW.. => &[
            Column::Id,
            Column::Type,
            Column::Queue,
            Column::Try,
            Column::For,
            Column::Progress,
            Column::Message,
        ],
    }
}

impl Column {
    const fn name(self) -> &'static str {
        match self {
            Self::Id => "ID",
            Self::Type => "TYPE",
            Self::Queue => "QUEUE",
            Self::Try => "TRY",
            Self::For => "FOR",
            Self::Progress => "PROGRESS",
            Self::Message => "",
        }
    }

    const fn width(self) -> Constraint {
        match self {
            Self::Id => Constraint::Length(36),
            Self::Type | Self::Message => Constraint::Fill(1),
            Self::Queue => Constraint::Length(14),
            Self::Try => Constraint::Length(5),
            Self::For => Constraint::Length(8),
            Self::Progress => Constraint::Length(18),
        }
    }

    fn cell(self, model: &Model, task: &TaskSummary) -> Cell<'static> {
        let progress = ProgressSummary::of(task.progress.as_ref());
        match self {
            Self::Id => Cell::new(task.task_id.to_string()).style(faint(model)),
            Self::Type => Cell::new(clean(&task.task_type)),
            Self::Queue => Cell::new(clean(&task.queue)),
            Self::Try => Cell::new(format!("{}/{}", task.attempt, task.max_attempts)),
            Self::For => {
                let age = task.started_at.map(|started| age(started, model.now));
                Cell::new(age.unwrap_or_default())
            }
            Self::Progress => Cell::new(progress.percent.map(bar).unwrap_or_default())
                .style(paint(model, Color::Cyan)),
            Self::Message => Cell::new(cut(progress.message.as_deref().unwrap_or(""), 80)),
        }
    }
}

/// `━━━━────────   30%`
fn bar(percent: f64) -> String {
    let percent = percent.clamp(0.0, 100.0);
    // The value is clamped, so the cast is exact.
    let full = (percent / 100.0 * BAR as f64).round() as usize;
    format!(
        "{}{} {percent:>4.0}%",
        "━".repeat(full),
        "─".repeat(BAR - full)
    )
}

/// A table with a bold header. The columns from `right_from` on are aligned right.
fn table<'a>(
    model: &Model,
    rows: impl Iterator<Item = Row<'a>>,
    widths: &[Constraint],
    header: &[&'a str],
    right_from: usize,
) -> Table<'a> {
    let name = |(index, text): (usize, &&'a str)| {
        let side = if index >= right_from {
            Alignment::Right
        } else {
            Alignment::Left
        };
        Line::from(*text).alignment(side)
    };

    let head = Row::new(header.iter().enumerate().map(name))
        .style(Style::new().add_modifier(Modifier::BOLD));
    let chosen = if model.has_colours {
        Style::new().bg(Color::DarkGray)
    } else {
        Style::new()
    };

    Table::new(rows, widths.to_vec())
        .header(head)
        .row_highlight_style(chosen.add_modifier(Modifier::BOLD))
}

fn footer(model: &Model) -> Paragraph<'static> {
    let messages = [&model.failure, &model.note, &model.refusal];
    let message = messages.into_iter().find(|text| !text.is_empty());

    let text = if let Some(id) = model.cancelling {
        format!(" Cancel {id} and all its descendants? y cancels, any other key does not.")
    } else if model.is_typing {
        format!(" /{}▏ Enter applies it, Esc shows all", model.filter)
    } else if let Some(message) = message {
        format!(" {}", clean(message))
    } else {
        " q leave  Tab choose  ↑↓ move  p pause or resume  c cancel  / filter".to_owned()
    };

    Paragraph::new(text).style(faint(model))
}
