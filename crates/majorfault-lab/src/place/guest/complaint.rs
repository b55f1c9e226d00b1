//! What a kernel complains of on its console: warnings, bugs, reports of KASAN and lockdep.

/// How the first line of a complaint begins, after the time. Others have these words within the line and mean nothing bad, such
/// as "Spectre V2 : WARNING: Unprivileged eBPF is enabled".
const BEGINNINGS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "kernel BUG at ",
    "UBSAN: ",
    "Oops: ",
    "general protection fault",
    "INFO: task ",
    "INFO: trying to register non-static key",
    "list_add corruption",
    "list_del corruption",
];

/// Lines of a complaint that are shown.
const LINES: usize = 30;

/// The first complaint of a console, with how many there are; `None` where there is none.
pub fn first(console: &str) -> Option<String> {
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let count = lines.iter().filter(|line| begins(line)).count();
    let at = lines.iter().position(|line| begins(line))?;
    let shown = lines[at..].iter().take(LINES).filter(|line| !line.is_empty());
    let shown: Vec<String> = shown.map(|line| format!("  {line}")).collect();
    let more = if count == 1 { String::new() } else { format!(", the first of {count}") };
    Some(format!("the guest's kernel complained{more}:\n{}", shown.join("\n")))
}

fn begins(line: &str) -> bool {
    // "[    3.141592] " where the kernel tells the time, "[    3.141592][  T17] " where it tells who as well.
    let mut text = line;
    while let Some((_, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        text = rest.trim_start();
    }
    BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernels_complain_of_is_seen_with_and_without_the_time() {
        for line in [
            "WARNING: possible circular locking dependency detected",
            "[    3.141592] WARNING: CPU: 1 PID: 77 at mm/strided.c:88 submit_batch+0x1/0x2",
            "[    3.141592][   T77] BUG: KASAN: slab-use-after-free in missed+0x10/0x20",
            "[   12.000000] BUG: sleeping function called from invalid context at mm/strided.c:100",
            "[   12.000000] INFO: task majorfault:77 blocked for more than 122 seconds.",
        ] {
            let console = format!("Booting\r\n{line}\r\nCall Trace:\r\n");

            let told = first(&console).unwrap_or_else(|| panic!("{line}"));

            assert_eq!(told, format!("the guest's kernel complained:\n  {line}\n  Call Trace:"));
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        let console = "Spectre V2 : WARNING: Unprivileged eBPF is enabled\n[    0.1] MDS CPU bug present and SMT on\n";

        assert_eq!(first(console), None);
        assert_eq!(first(""), None);
    }

    #[test]
    fn of_several_the_first_is_shown_and_the_others_counted() {
        let told = first("WARNING: one\nx\nWARNING: two\n").unwrap();

        assert!(told.starts_with("the guest's kernel complained, the first of 2:\n  WARNING: one\n"), "{told}");
    }
}
