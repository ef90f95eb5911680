//! A task type as its submitters see it: what goes in and what comes out, without the code between.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use crate::task::Task;

/// What submitters and handles know of a task type. Every [`Task`] is one.
pub trait Kind: 'static {
    /// What a submitter hands in.
    type Params: Serialize;
    /// The result.
    type Output: DeserializeOwned;
}

impl<T: Task> Kind for T {
    type Params = T::Params;
    type Output = T::Output;
}

/// A task type that a submitter knows by its name: a plain function, or one whose code is in another program.
#[derive(Debug)]
pub struct Named<P, R>(PhantomData<fn(P) -> R>);

impl<P: Serialize + 'static, R: DeserializeOwned + 'static> Kind for Named<P, R> {
    type Params = P;
    type Output = R;
}
