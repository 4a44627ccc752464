//! Kernel settings of a lab host. They are written by a thread inside its namespace:
//! `/proc/sys/net` shows the settings of the namespace of the opening thread.

use std::fs;
use std::io;

use crate::LabError;

/// Replies to simulated clients return to the client host, which must neither forward them nor
/// validate their addresses; both settings may be inherited from the host.
const IPV4: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// No host advertises or solicits routers, and addresses are usable at once, without duplicate
/// address detection. `all` applies to duplicate address detection together with the interface's
/// own setting, which is derived from `default`.
const IPV6: [(&str, &str); 7] = [
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/ipv6/conf/all/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/all/router_solicitations", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// Keeps a lab configured without IPv6 free of its multicast.
const NO_IPV6: [(&str, &str); 2] =
    [("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")];

/// Applies the settings of the calling thread's namespace; before it has interfaces, so that they
/// inherit them.
pub(crate) fn apply(ipv6: bool) -> Result<(), LabError> {
    for (setting, value) in IPV4 {
        write(setting, value).map_err(|source| failed(setting, source))?;
    }
    let settings: &[_] = if ipv6 { &IPV6 } else { &NO_IPV6 };
    for &(setting, value) in settings {
        match write(setting, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ipv6 => {
                return Err(LabError::NoIpv6 { setting: setting.to_owned() });
            }
            // A kernel without IPv6 has nothing to turn off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|source| failed(setting, source))?,
        }
    }
    Ok(())
}

fn write(setting: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{setting}"), value)
}

fn failed(setting: &str, source: io::Error) -> LabError {
    LabError::Setting { setting: setting.to_owned(), source }
}
