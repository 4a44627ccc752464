//! What the network path between two hosts really does: a far end that answers ([`serve`]) and the
//! measurements that ask it ([`udp`]). A measurement returns a record; nothing here prints.

pub mod serve;
pub mod udp;
