//! What the network path between two hosts really does: a far end that answers ([`serve`], and over
//! TCP [`tcp`]'s) and the measurements that ask it ([`udp`], [`tcp`]). A measurement returns a
//! record; nothing here prints.

pub mod serve;
pub mod stall;
pub mod tcp;
pub mod udp;
