//! Decisions on requests: replies, rate limits and prefix lists, and the state stored for clients.
//! No socket is opened and no clock is read.

pub(crate) mod address_hash;
pub(crate) mod decide;
pub(crate) mod frame;
pub(crate) mod interleaved;
pub(crate) mod limits;
pub(crate) mod transmitted_reply;
