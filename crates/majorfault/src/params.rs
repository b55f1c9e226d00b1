//! Parameters, declared once: a struct declared by `params!` has its defaults, its documentation, its setters and its text form.
//!
//! Programs set them by methods, which the compiler checks. The command line, the record and the report go through
//! [`Given`], a layer of names above the same structs, so a parameter added in one line appears in all of them, and the
//! settings in force can be read back with the defaults filled in.

use crate::error::{Error, Result};
use crate::units::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Parameter values as text, by name: those that a user gave, or all that are in force.
///
/// Reads and prints as `advice=random,populate=read`; an empty text holds no parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given(pub BTreeMap<String, String>);

/// What is known about a parameter before a value is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The name users type.
    pub name: &'static str,
    /// Its default, as text.
    pub default: String,
    /// The values that it accepts, in words: `normal|random` or `bytes, e.g. 4k`.
    pub legal: String,
    /// One sentence that explains it, with the reason for the default.
    pub doc: &'static str,
}

/// A type that a parameter can have: read from text, printed as text, with its legal values named.
pub trait Value: Sized {
    /// The value that `text` stands for; the error says what is wrong with the text.
    fn read(text: &str) -> std::result::Result<Self, String>;
    /// The text that [`read`](Value::read) would turn into this value.
    fn text(&self) -> String;
    /// The legal values, in words.
    fn legal() -> String;
}

/// A struct declared by [`params!`](crate::params!).
pub trait Params: Sized + Default {
    /// The parameters in order of declaration.
    fn declared() -> Vec<Param>;
    /// The struct with each given value read and every other field at its default.
    ///
    /// Errors: Invalid for an unknown name (lists the legal ones) or a value that cannot be read.
    fn from_given(given: &Given) -> Result<Self>;
    /// All values in force.
    fn given(&self) -> Given;
}

/// What sets a parameter of type `T` in code: a `T`, or a value that stands for one, as `true` does for [`Switch::On`].
pub trait IntoSetting<T> {
    /// The value.
    fn setting(self) -> T;
}

impl<T> IntoSetting<T> for T {
    fn setting(self) -> T {
        self
    }
}

impl IntoSetting<Switch> for bool {
    fn setting(self) -> Switch {
        if self { Switch::On } else { Switch::Off }
    }
}

impl IntoSetting<String> for &str {
    fn setting(self) -> String {
        self.to_owned()
    }
}

impl Given {
    /// No parameter given.
    pub fn none() -> Given {
        Given::default()
    }

    /// The same with `name` set to `value`.
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Given {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// The text given for `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of one parameter, or its default. Used by `params!`.
    pub fn value<V: Value>(&self, name: &str, default: V) -> Result<V> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => {
                V::read(text).map_err(|why| Error::Invalid(format!("{name}={text}: {why}; legal is {}", V::legal())))
            }
        }
    }

    /// Fails on a name that is not among `declared`, and names those that are.
    pub fn only(&self, declared: &[Param]) -> Result<()> {
        let Some(unknown) = self.0.keys().find(|name| declared.iter().all(|p| p.name != name.as_str())) else {
            return Ok(());
        };
        let names: Vec<&str> = declared.iter().map(|p| p.name).collect();
        let legal =
            if names.is_empty() { "it takes none".to_owned() } else { format!("legal are {}", names.join(", ")) };
        Err(Error::Invalid(format!("there is no parameter \"{unknown}\" here; {legal}")))
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Given {
    type Err = Error;

    fn from_str(text: &str) -> Result<Given> {
        let mut given = Given::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Error::Invalid(format!("\"{pair}\" is not a parameter; write name=value")))?;
            if given.0.insert(name.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(Error::Invalid(format!("the parameter \"{}\" is given twice", name.trim())));
            }
        }
        Ok(given)
    }
}

/// Implements [`Value`] for types whose `FromStr` and `Display` are inverses.
macro_rules! value_by_text {
    ($($type:ty: $legal:literal),* $(,)?) => { $(
        impl Value for $type {
            fn read(text: &str) -> std::result::Result<Self, String> {
                text.parse().map_err(|why| format!("{why}"))
            }
            fn text(&self) -> String {
                self.to_string()
            }
            fn legal() -> String {
                $legal.to_owned()
            }
        }
    )* };
}

value_by_text! {
    Bytes: "a size such as 4k or 2m",
    u32: "a whole number",
    u64: "a whole number",
    f64: "a number",
    String: "a text",
}

impl Value for Nanos {
    fn read(text: &str) -> std::result::Result<Self, String> {
        text.parse().map_err(|why| format!("{why}"))
    }
    /// Exact, where `Display` rounds: a record must give back the same time.
    fn text(&self) -> String {
        format!("{}ns", self.0)
    }
    fn legal() -> String {
        "a time such as 10s or 250ms".to_owned()
    }
}

/// A struct of parameters: documentation, type and default of each field in one place, and a setter for each.
///
/// ```
/// majorfault::params! {
///     /// How a queue is used.
///     pub struct QueueOptions {
///         /// Requests kept in flight; 32 saturates most single disks.
///         depth: u32 = 32,
///         /// Whether to poll.
///         poll: majorfault::params::Switch = majorfault::params::Switch::Off,
///     }
/// }
/// use majorfault::params::{Given, Params};
///
/// let typed = QueueOptions::default().depth(8).poll(true);
/// let named = QueueOptions::from_given(&"depth=8,poll=on".parse().unwrap()).unwrap();
/// assert_eq!(typed, named);
/// assert_eq!(typed.given().to_string(), "depth=8,poll=on");
/// assert!(QueueOptions::from_given(&Given::none().with("dpeth", 8)).is_err());
/// ```
///
/// In code a name that is not declared does not compile.
///
/// ```compile_fail,E0599
/// majorfault::params! {
///     /// How a queue is used.
///     pub struct QueueOptions {
///         /// Requests kept in flight; 32 saturates most single disks.
///         depth: u32 = 32,
///     }
/// }
/// let typed = QueueOptions::default().dpeth(8);
/// ```
#[macro_export]
macro_rules! params {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $(#[doc = $doc:literal] $field:ident: $type:ty = $default:expr),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(#[doc = $doc] pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }

        #[allow(dead_code, reason = "not every struct is set in code")]
        impl $name {
            $(
                #[doc = $doc]
                #[must_use]
                $vis fn $field(mut self, $field: impl $crate::params::IntoSetting<$type>) -> Self {
                    self.$field = $crate::params::IntoSetting::setting($field);
                    self
                }
            )*
        }

        impl $crate::params::Params for $name {
            fn declared() -> Vec<$crate::params::Param> {
                let $name { $($field,)* } = $name::default();
                vec![$($crate::params::Param {
                    name: stringify!($field),
                    default: $crate::params::Value::text(&$field),
                    legal: <$type as $crate::params::Value>::legal(),
                    doc: $doc.trim_ascii(),
                },)*]
            }

            fn from_given(given: &$crate::params::Given) -> $crate::error::Result<Self> {
                given.only(&Self::declared())?;
                let $name { $($field,)* } = $name::default();
                Ok($name { $($field: given.value(stringify!($field), $field)?,)* })
            }

            fn given(&self) -> $crate::params::Given {
                let $name { $($field,)* } = self;
                $crate::params::Given::none()$(.with(stringify!($field), $crate::params::Value::text($field)))*
            }
        }
    };
}

/// An enum with names that users type for its variants; it reads, prints and lists itself.
///
/// ```
/// majorfault::choices! {
///     /// Which way bytes go.
///     pub enum Way {
///         /// From the file.
///         In = "in",
///         /// To the file.
///         Out = "out",
///     }
/// }
/// use majorfault::params::Value;
///
/// assert_eq!(Way::read("out"), Ok(Way::Out));
/// assert_eq!(Way::legal(), "in|out");
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// Every variant, in order of declaration.
            #[allow(dead_code, reason = "not every enum is iterated")]
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::params::Value for $name {
            fn read(text: &str) -> std::result::Result<Self, String> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => Err(format!("\"{text}\" is none of them")),
                }
            }
            fn text(&self) -> String {
                match self {
                    $($name::$variant => $text.to_owned(),)*
                }
            }
            fn legal() -> String {
                [$($text),*].join("|")
            }
        }
    };
}

choices! {
    /// On or off, where a bare `bool` would read badly.
    pub enum Switch {
        /// Do it.
        On = "on",
        /// Leave it.
        Off = "off",
    }
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    params! {
        /// For these tests.
        struct Sample {
            /// How far.
            stride: Bytes = Bytes::kib(64),
            /// Whether to.
            huge: Switch = Switch::Off,
        }
    }

    #[test]
    fn defaults_that_nobody_typed_are_in_force() {
        let sample = Sample::from_given(&Given::none().with("huge", "on")).unwrap();

        assert_eq!(sample.given().to_string(), "huge=on,stride=64k");
    }

    #[test]
    fn what_is_set_in_code_is_what_its_name_sets() {
        let typed = Sample::default().stride(Bytes::kib(4)).huge(true);

        assert_eq!(typed, Sample::from_given(&"stride=4k,huge=on".parse().unwrap()).unwrap());
        assert_eq!(typed.huge(Switch::Off).given().to_string(), "huge=off,stride=4k");
    }

    #[test]
    fn a_wrong_value_is_named_with_the_legal_ones() {
        let error = Sample::from_given(&Given::none().with("huge", "maybe")).unwrap_err();

        assert_eq!(error.to_string(), "huge=maybe: \"maybe\" is none of them; legal is on|off");
    }

    #[test]
    fn an_unknown_parameter_is_named_with_the_legal_ones() {
        let error = Sample::from_given(&"strid=4k".parse().unwrap()).unwrap_err();

        assert_eq!(error.to_string(), "there is no parameter \"strid\" here; legal are stride, huge");
    }

    #[test]
    fn times_survive_the_round_trip_through_text() {
        let exact = Nanos(1_234_567_891);

        assert_eq!(Nanos::read(&exact.text()), Ok(exact));
    }
}
