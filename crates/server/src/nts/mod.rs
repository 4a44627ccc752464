//! Network Time Security and symmetric keys: secrets, NTS-KE listener, authentication of requests.

pub(crate) mod authenticate;
pub(crate) mod nts_ke;
pub(crate) mod secrets;
