//! What the tool beside the program said, and whether its run may be counted.

use serde_json::Value;
use std::process::Output;

/// The tool's document of a run that it stayed with to the program's end.
///
/// Errors: in a sentence, where it failed, left early, or saw none of the program's faults.
pub fn document(tool: &str, ran: &Output) -> Result<Value, String> {
    let why = |what: String| format!("{tool} {what}\n{}", String::from_utf8_lossy(&ran.stderr).trim_end());
    // The doctor says by its code that a program ended while it was watched.
    let well = if tool == "doctor" { 2 } else { 0 };
    if ran.status.code() != Some(well) {
        return Err(why(format!("failed: {}", ran.status)));
    }
    let said: Value = serde_json::from_slice(&ran.stdout).map_err(|error| why(format!("said no document: {error}")))?;
    let (ended, faults) = match tool {
        "doctor" => (&said["target"]["ended"], &said["faults"]["seen"]),
        _ => (&said["ended"], &said["faults"]),
    };
    match (ended.as_bool(), faults.as_u64()) {
        (Some(true), Some(1..)) => Ok(said),
        (Some(true), _) => Err(why("saw no fault of the program".to_owned())),
        _ => Err(why("left before the program ended".to_owned())),
    }
}

/// Processor time of the tool in nanoseconds; not a number where it does not tell.
pub fn own_cpu_ns(said: &Value) -> f64 {
    said["own_cpu_ns"].as_f64().unwrap_or(f64::NAN)
}

/// Whether a stride was read ahead of in at least one of the runs. The other orders are there to be left alone.
///
/// Errors: in a sentence, where it was not: the figures would be those of the program alone.
pub fn helped(tool: &str, order: &str, said: &[Value]) -> Result<(), String> {
    let is_left_alone = matches!(order, "sequential" | "random" | "chase");
    let bytes = |said: &Value| -> u64 {
        let files = said["files"].as_array().into_iter().flatten();
        files.filter_map(|file| file["read_ahead_bytes"].as_u64()).sum()
    };
    if tool != "assist" || is_left_alone || said.iter().any(|said| bytes(said) > 0) {
        return Ok(());
    }
    Err(format!("{tool} read nothing ahead of the stride {order} in {} runs", said.len()))
}
