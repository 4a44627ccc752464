//! Interrupts of a NIC, found in `/proc/interrupts` by the name of its interface or device, with
//! their CPU affinity. Parsing is pure.

use std::fs;
use std::path::Path;

use horolog_record::NicInterrupt;

/// Returns the interrupts whose name belongs to one of `names`.
pub(super) fn nic_interrupts(names: &[String]) -> Vec<NicInterrupt> {
    let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let mut found = parse_interrupts(&text, names);
    for interrupt in &mut found {
        let directory = Path::new("/proc/irq").join(interrupt.number.to_string());
        let read = |name: &str| {
            let text = fs::read_to_string(directory.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        interrupt.allowed_cores = read("smp_affinity_list");
        interrupt.effective_cores = read("effective_affinity_list");
    }
    found
}

fn parse_interrupts(text: &str, names: &[String]) -> Vec<NicInterrupt> {
    let cores = text.lines().next().map_or(0, |line| line.split_whitespace().count());
    let interrupt = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let words: Vec<_> = rest.split_whitespace().collect();
        let counts = words.get(..cores)?.iter().map(|word| word.parse::<u64>().ok());
        let count = counts.sum::<Option<u64>>()?;
        let mut of_device = words.get(cores..)?.iter().rev();
        // Several handlers of one line are separated by commas.
        let name = of_device.find(|word| names.iter().any(|name| is_name_of(word, name)))?;
        Some(NicInterrupt {
            number,
            name: (*name).trim_end_matches(',').to_owned(),
            count,
            allowed_cores: None,
            effective_cores: None,
        })
    };
    text.lines().skip(1).filter_map(interrupt).collect()
}

/// Returns true if an interrupt's name is that of a device, possibly with a suffix or prefix:
/// `eth0`, `eth0-TxRx-1`, `virtio2-input.0`, `mlx5_comp3@pci:0000:03:00.0`.
fn is_name_of(word: &str, name: &str) -> bool {
    let word = word.trim_end_matches(',');
    if name.is_empty() {
        return false;
    }
    let begins = word.strip_prefix(name).is_some_and(|rest| {
        rest.chars().next().is_none_or(|next| !next.is_ascii_alphanumeric() && next != '.')
    });
    let ends = word
        .strip_suffix(name)
        .is_some_and(|front| front.ends_with(':') || front.ends_with('-') || front.ends_with('@'));
    begins || ends
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "           CPU0       CPU1\n\
        \x2038:          5       4641 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
        \x2039:       3168          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0\n\
        \x2040:          7          0 PCI-MSIX-0000:00:14.0   0-edge      virtio20-config\n\
        \x2041:          1          2 PCI-MSI  eth0-TxRx-0\n\
        \x2042:          9          9 PCI-MSI  eth01\n\
        \x2043:          0          1 PCI-MSI  mlx5_comp3@pci:0000:03:00.0\n\
        NMI:          0          0   Non-maskable interrupts\n";

    fn found(names: &[&str]) -> Vec<(u32, u64)> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        parse_interrupts(TEXT, &names).iter().map(|one| (one.number, one.count)).collect()
    }

    #[test]
    fn a_device_has_its_own_interrupts_and_no_other_s() {
        assert_eq!(found(&["virtio2", ""]), [(38, 4_646), (39, 3_168)]);
        assert_eq!(found(&["eth0"]), [(41, 3)]);
        assert_eq!(found(&["0000:03:00.0"]), [(43, 1)]);
        assert_eq!(found(&["lo"]), []);
    }
}
