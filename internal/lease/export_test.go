package lease

// OpenEdited is Open with the scripts changed first: for mutants.
var OpenEdited = open
