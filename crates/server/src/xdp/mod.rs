//! XDP engine: the program on its interfaces, its clock and addresses, and its counts.

pub(crate) mod clock_page_sink;
pub(crate) mod counts;
pub(crate) mod engine;
pub(crate) mod queues;
