//! A task type as its submitters see it: parameters and result, without the code.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use crate::task::Task;

/// The parameters and the result of a task type. Every [`Task`] is one.
pub trait Kind: 'static {
    /// What a submitter passes in.
    type Params: Serialize;
    /// The result.
    type Output: DeserializeOwned;
}

impl<T: Task> Kind for T {
    type Params = T::Params;
    type Output = T::Output;
}

/// A task type that a submitter knows by its name only: a function, or code in another program.
#[derive(Debug)]
pub struct Named<P, R>(PhantomData<fn(P) -> R>);

impl<P: Serialize + 'static, R: DeserializeOwned + 'static> Kind for Named<P, R> {
    type Params = P;
    type Output = R;
}
