//! Log lines as JSON: one object per line. The fields of all enclosing spans are at the top level,
//! so that `grep '"task_id":"…"'` finds every line of a task.

use std::fmt;
use std::io::Write as _;

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    fmt::{
        MakeWriter,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::Context,
    registry::LookupSpan,
};

use super::FOR_TRACES;

/// A layer that writes a JSON object for each event.
#[derive(Debug)]
pub(super) struct JsonLog<W> {
    writer: W,
}

impl<W> JsonLog<W> {
    pub(super) const fn new(writer: W) -> Self {
        Self { writer }
    }
}

/// The fields of a span or an event.
#[derive(Debug, Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        if !field.name().starts_with(FOR_TRACES) {
            self.0.insert(field.name().to_owned(), value.into());
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl<S, W> Layer<S> for JsonLog<W>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Fields::default();
        event.record(&mut line);

        let scope = context.event_scope(event).into_iter();
        for span in scope.flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                // A span's ids replace those of the event: code within a task must not name
                // another one.
                line.0.extend(fields.0.clone());
            }
        }

        let metadata = event.metadata();
        let level = metadata.level().as_str();
        line.0.insert("timestamp".to_owned(), timestamp().into());
        line.0.insert("level".to_owned(), level.into());
        line.0.insert("target".to_owned(), metadata.target().into());

        if let Ok(mut text) = serde_json::to_vec(&line.0) {
            text.push(b'\n');
            // A log that cannot be written must not stop the work.
            let _ = self.writer.make_writer_for(metadata).write_all(&text);
        }
    }
}

fn timestamp() -> String {
    let mut time = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}
