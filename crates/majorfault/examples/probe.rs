//! Lists which facilities this kernel and your rights offer to the library, and how to get the others.
//!
//!     cargo run --release -p majorfault --example probe

fn main() {
    for need in majorfault::NEEDS {
        match (need.probe)() {
            Ok(found) => println!("yes  {:16} {} ({found})", need.name, need.summary),
            Err(missing) => println!("no   {:16} {missing}", need.name),
        }
    }
}
