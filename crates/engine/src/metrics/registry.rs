//! The registry of metrics: each is registered here with its help text, and written out from here.

use std::fmt::Write as _;

use prometheus_client::{
    encoding::EncodeMetric,
    metrics::{TypedMetric, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

/// A metric, for the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The name as it is scraped.
    pub name: String,
    pub kind: Kind,
    pub labels: Vec<&'static str>,
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The two text formats that scrapers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
    /// `text/plain; version=0.0.4`, the default.
    Plain,
}

/// The labels of one series with their values.
type Labels<const N: usize> = [(&'static str, String); N];

/// A metric with labels: one series for each combination of their values.
#[derive(Debug, Clone)]
pub struct MetricFamily<M, const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, M, fn() -> M>,
}

impl<M: Clone, const N: usize> MetricFamily<M, N> {
    /// The handle of one series, which is made when it is new. Frequent callers store it.
    pub fn get(&self, values: [&str; N]) -> M {
        let mut values = values.into_iter();
        let set = self
            .names
            .map(|name| (name, values.next().unwrap_or_default().to_owned()));
        self.family.get_or_create_owned(&set)
    }

    pub fn clear(&self) {
        self.family.clear();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct MetricRegistry {
    inner: Registry,
    described: Vec<Description>,
}

impl MetricRegistry {
    /// Registers a counter. Its name gets `_total` appended.
    pub fn counters<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        help: &'static str,
    ) -> MetricFamily<Counter, N> {
        self.family(name, Kind::Counter, labels, help, Counter::default)
    }

    pub fn gauges<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        help: &'static str,
    ) -> MetricFamily<Gauge, N> {
        self.family(name, Kind::Gauge, labels, help, Gauge::default)
    }

    pub fn histograms<const N: usize>(
        &mut self,
        name: &'static str,
        labels: [&'static str; N],
        help: &'static str,
        make: fn() -> Histogram,
    ) -> MetricFamily<Histogram, N> {
        self.family(name, Kind::Histogram, labels, help, make)
    }

    fn family<M, const N: usize>(
        &mut self,
        name: &'static str,
        kind: Kind,
        names: [&'static str; N],
        help: &'static str,
        make: fn() -> M,
    ) -> MetricFamily<M, N>
    where
        M: EncodeMetric + TypedMetric + Clone + Send + Sync + std::fmt::Debug + 'static,
    {
        let metric = MetricFamily {
            names,
            family: Family::new_with_constructor(make),
        };
        self.register(name, kind, names.to_vec(), help, metric.family.clone());
        metric
    }

    /// Registers a metric without labels.
    pub fn single<M: Metric + Default + Clone>(
        &mut self,
        name: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> M {
        let metric = M::default();
        self.register(name, kind, Vec::new(), help, metric.clone());
        metric
    }

    fn register(
        &mut self,
        name: &'static str,
        kind: Kind,
        labels: Vec<&'static str>,
        help: &'static str,
        metric: impl Metric,
    ) {
        self.inner.register(name, help, metric);
        let name = if kind == Kind::Counter {
            format!("{name}_total")
        } else {
            name.to_owned()
        };

        // The registry appends a full stop to each help text.
        self.described.push(Description {
            name,
            kind,
            labels,
            help,
        });
    }

    pub fn described(&self) -> &[Description] {
        &self.described
    }

    pub fn text(&self, format: Format) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.inner)?;
        let text = without_empty_labels(&text);
        match format {
            Format::OpenMetrics => Ok(text),
            Format::Plain => plain(&text),
        }
    }
}

/// Removes the empty brackets of metrics without labels.
fn without_empty_labels(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once('{') {
            Some((name, rest)) if !line.starts_with('#') && rest.starts_with("} ") => {
                out.push_str(name);
                out.push_str(&rest[1..]);
            }
            Some(_) | None => out.push_str(line),
        }

        out.push('\n');
    }

    out
}

/// Converts OpenMetrics to the older format, which has `_total` in the description of a counter
/// too, and no end mark.
fn plain(text: &str) -> Result<String, std::fmt::Error> {
    let mut out = String::with_capacity(text.len() + 1_024);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let mut fields = line.splitn(4, ' ');
        let mark = fields.next();
        let keyword = fields.next();
        let name = fields.next();
        let rest = fields.next().unwrap_or("");

        let is_counter = match keyword {
            Some("HELP") => lines
                .peek()
                .is_some_and(|next| next.starts_with("# TYPE") && next.ends_with(" counter")),
            Some("TYPE") => rest == "counter",
            Some(_) | None => false,
        };

        match (mark, keyword, name) {
            (Some("#"), Some("EOF"), _) => {}
            (Some("#"), Some(keyword), Some(name)) if is_counter => {
                writeln!(out, "# {keyword} {name}_total {rest}")?
            }
            _ => writeln!(out, "{line}")?,
        }
    }

    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_have_the_same_numbers() {
        let mut registry = MetricRegistry::default();
        registry
            .counters("tasks_made", ["kind"], "Tasks that were made")
            .get(["a"])
            .inc_by(2);
        registry
            .gauges("tasks_open", [], "Tasks that are open")
            .get([])
            .set(3);
        let open = registry.text(Format::OpenMetrics).unwrap();
        let plain = registry.text(Format::Plain).unwrap();

        assert_eq!(open.lines().last(), Some("# EOF"));
        assert!(
            open.contains("# TYPE tasks_made counter\n")
                && plain.contains("# TYPE tasks_made_total counter\n")
        );
        assert!(
            plain.contains("# HELP tasks_made_total Tasks that were made.\n"),
            "{plain}"
        );

        for text in [open, plain] {
            assert!(
                text.contains("tasks_made_total{kind=\"a\"} 2\n")
                    && text.contains("tasks_open 3\n"),
                "{text}"
            );
        }
    }
}
