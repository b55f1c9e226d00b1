//! What every policy must do; a new one passes these without a line of its own.
