//! Replaces `mounted` in a program built without the feature `server`: there are none.

use longhaul_domain::Invalid;

use crate::Longhaul;

/// No application can be mounted.
#[derive(Debug, Default)]
pub(crate) struct Applications;

impl Longhaul {
    pub(crate) fn mount_all(self, _applications: Applications) -> Result<Self, Invalid> {
        Ok(self)
    }
}
