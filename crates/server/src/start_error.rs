//! Why a server did not start, said so that a user knows what to do.

use std::io;
use std::net::SocketAddr;

use horolog_io::UdpError;
use horolog_ke::KeError;
use horolog_source::Fault;

use crate::hardware::HardwareStartError;
use crate::metrics::MetricsError;
use crate::ptp::PtpStartError;
use crate::status::StatusError;
use crate::web::WebError;
use crate::xdp::BodyError;
use crate::{ConfigError, ConfineError, LeapFileError, SecretsError};

/// Why a server did not start; its text is one line for the user. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is not right.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The leap-seconds file is not right.
    #[error(transparent)]
    LeapFile(#[from] LeapFileError),
    /// The port is taken.
    #[error(
        "address {0} is in use by another process (ss -ulpn 'sport = :{port}' names it); \
         choose another with --listen",
        port = .0.port()
    )]
    InUse(SocketAddr),
    /// A socket could not be opened.
    #[error(transparent)]
    Listen(UdpError),
    /// The kernel does not answer, and was told to.
    #[error(transparent)]
    Xdp(#[from] BodyError),
    /// The status socket could not be made.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// There are no random numbers.
    #[error("the kernel gives no random numbers: {0}")]
    Random(#[source] io::Error),
    /// There is no memory for what is to be remembered of clients.
    #[error("there is no memory to remember {0} clients in")]
    Memory(usize),
    /// Hardware timestamps could not be had.
    #[error(transparent)]
    Hardware(#[from] HardwareStartError),
    /// Keys or a secret could not be had.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The listener of NTS key establishment could not be started.
    #[error(transparent)]
    Establishment(#[from] KeError),
    /// A source of time is not there.
    #[error("the source {0} cannot be used: {1}")]
    Source(String, Fault),
    /// There can be no PTP.
    #[error(transparent)]
    Ptp(#[from] PtpStartError),
    /// Metrics cannot be told where they were wanted.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// There can be no live page where one was wanted.
    #[error(transparent)]
    Web(#[from] WebError),
    /// It cannot be confined as it has to be.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; see the limits on processes and memory (ulimit -a)")]
    Thread(#[source] io::Error),
}

impl From<UdpError> for StartError {
    fn from(error: UdpError) -> Self {
        match error {
            UdpError::InUse(address) => Self::InUse(address),
            other => Self::Listen(other),
        }
    }
}
