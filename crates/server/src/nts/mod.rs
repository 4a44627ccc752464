//! Network Time Security and symmetric keys: secrets, key establishment, authentication of requests.

pub(crate) mod authenticate;
pub(crate) mod nts_ke;
pub(crate) mod secrets;
