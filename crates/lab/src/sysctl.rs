//! Kernel settings (sysctl) of a lab host. A thread inside its namespace writes them, because
//! `/proc/sys/net` shows the settings of the namespace of the thread that opens it.

use std::fs;
use std::io;

use crate::LabError;

/// Settings of IPv4. Replies to simulated clients arrive at the client host, which must neither
/// forward them nor drop them by reverse-path filtering; both settings may be inherited from the
/// host.
const IPV4_SETTINGS: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Settings of IPv6. No host sends router advertisements or solicitations, and addresses are usable
/// at once, without duplicate address detection. For that, `all` counts together with the setting
/// of the interface, which is derived from `default`.
const IPV6_SETTINGS: [(&str, &str); 7] = [
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/ipv6/conf/all/accept_ra", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/all/router_solicitations", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];

/// Settings of a lab without IPv6: no interface has an IPv6 address or sends multicast for it.
const IPV6_DISABLED_SETTINGS: [(&str, &str); 2] =
    [("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")];

/// Applies the settings to the calling thread's namespace. To be called before interfaces are
/// created, which inherit them.
pub(crate) fn apply(ipv6: bool) -> Result<(), LabError> {
    for (setting, value) in IPV4_SETTINGS {
        write(setting, value).map_err(|source| setting_error(setting, source))?;
    }
    let settings: &[_] = if ipv6 { &IPV6_SETTINGS } else { &IPV6_DISABLED_SETTINGS };
    for &(setting, value) in settings {
        match write(setting, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ipv6 => {
                return Err(LabError::NoIpv6 { setting: setting.to_owned() });
            }
            // A kernel without IPv6 has nothing to disable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|source| setting_error(setting, source))?,
        }
    }
    Ok(())
}

fn write(setting: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{setting}"), value)
}

fn setting_error(setting: &str, source: io::Error) -> LabError {
    LabError::SettingFailed { setting: setting.to_owned(), source }
}
