//! Decisions on requests: replies, rate limits and prefix lists, and the state stored for clients; no
//! socket and no clock.

pub(crate) mod address_hash;
pub(crate) mod decide;
pub(crate) mod frame;
pub(crate) mod interleaved;
pub(crate) mod limits;
pub(crate) mod transmitted_reply;
