//! The use cases that change something: first the store, then events, hints and signals.

mod claim;
mod submit;

pub mod finish;

mod cancel;
mod change;
mod retry;

mod expire;
mod give_up;
mod promote;
mod rescue;
