//! Operation of a running server: checks, confinement, reload, status, metrics and live page.

pub(crate) mod check;
pub(crate) mod confine;
pub(crate) mod metrics;
pub(crate) mod reload;
pub(crate) mod reload_parts;
pub(crate) mod server_status;
pub mod status;
pub(crate) mod web;
