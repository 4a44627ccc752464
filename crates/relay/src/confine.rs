//! Privileges of a relay while it runs.

use std::io;

use horolog_sys::capability::Capability;
use horolog_sys::sandbox;

/// Drops all privileges but those that a running relay needs: `CAP_NET_BIND_SERVICE` for low ports
/// of groups added later, `CAP_NET_ADMIN` for large buffers and new interfaces, and with the XDP
/// engine `CAP_BPF` for its new children. Threads that start later inherit that.
pub fn confine(uses_xdp: bool) -> io::Result<()> {
    let mut retained = vec![Capability::NetBindService, Capability::NetAdmin];
    retained.extend(uses_xdp.then_some(Capability::Bpf));
    sandbox::keep_capabilities(&retained)?;
    sandbox::no_new_privileges()
}
