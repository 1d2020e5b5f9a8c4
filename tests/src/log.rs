//! What is logged while a test runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The level and the text of a line.
pub type Line = (tracing::Level, String);

/// Keeps the lines that its thread logs.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines with `text` since the last question.
    #[must_use]
    pub fn take(&self, text: &str) -> Vec<Line> {
        self.lock().drain(..).filter(|(_, line)| line.contains(text)).collect()
    }
}

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if let Some((_, text)) = self.lock().last_mut() {
            *text += &format!(" {field}={value:?}");
        }
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.lock().push((*event.metadata().level(), String::new()));
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
