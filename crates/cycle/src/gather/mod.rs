//! What a run comes to: the collector's side, which adds up what tasks hand over.

pub(crate) mod book;
pub(crate) mod joint;
