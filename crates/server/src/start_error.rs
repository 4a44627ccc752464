//! Reasons for which a server did not start, with messages for the user.

use std::io;
use std::net::SocketAddr;

use horolog_io::UdpDeviceError;
use horolog_ke::NtsKeError;
use horolog_ptp::PtpStartError;
use horolog_source::SourceError;
use horolog_sys::explain::explain;

use crate::clock::leap_file::LeapFileError;
use crate::config::ConfigError;
use crate::nts::secrets::SecretsError;
use crate::operation::confine::ConfineError;
use crate::operation::metrics::MetricsError;
use crate::operation::status::StatusError;
use crate::operation::web::ServerLivePageError;
use crate::sockets::hardware::HardwareTimestampingError;
use crate::xdp::engine::XdpEngineError;

/// Reason for which a server did not start; its text is one line for the user. All that was opened
/// is closed again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Invalid configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Invalid leap-seconds file.
    #[error(transparent)]
    LeapFile(#[from] LeapFileError),
    /// Listen address in use.
    #[error(
        "address {0} is in use by another process (ss -ulpn 'sport = :{port}' names it); \
         choose another with --listen",
        port = .0.port()
    )]
    InUse(SocketAddr),
    /// Socket that could not be opened.
    #[error(transparent)]
    Listen(UdpDeviceError),
    /// XDP engine that is required but could not be started.
    #[error(transparent)]
    Xdp(#[from] XdpEngineError),
    /// Status socket that could not be created.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// Failure to obtain random numbers.
    #[error("cannot read random numbers from the kernel: {why}", why = explain(.0))]
    Random(#[source] io::Error),
    /// Insufficient memory for the stored state of clients.
    #[error("out of memory for a table of {0} clients")]
    Memory(usize),
    /// Unavailable hardware timestamps.
    #[error(transparent)]
    Hardware(#[from] HardwareTimestampingError),
    /// Unavailable keys or secrets.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// NTS-KE listener that could not be started.
    #[error(transparent)]
    NtsKe(#[from] NtsKeError),
    /// Time source that is missing or unusable.
    #[error("the source {0} is unusable: {1}")]
    Source(String, SourceError),
    /// PTP that cannot start.
    #[error(transparent)]
    Ptp(#[from] PtpStartError),
    /// Unavailable metrics endpoint.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// Unavailable live page.
    #[error(transparent)]
    Web(#[from] ServerLivePageError),
    /// Confinement that is required but incomplete.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// Thread that could not be started.
    #[error("cannot start a thread: {why}; check the limits on processes and memory (ulimit \
             -a)", why = explain(.0))]
    Thread(#[source] io::Error),
}

impl From<UdpDeviceError> for StartError {
    fn from(error: UdpDeviceError) -> Self {
        match error {
            UdpDeviceError::InUse(address) => Self::InUse(address),
            other => Self::Listen(other),
        }
    }
}
