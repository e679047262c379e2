// Promises: the tensors and sizes of a case of forms chunk and step. Does not:
// run anything, or choose slots (Pool.h).
#ifndef KDAC_LIB_REFERENCE_RECURRENCECASE_H
#define KDAC_LIB_REFERENCE_RECURRENCECASE_H

#include "kdac/Reference/Case.h"

#include <string>

namespace kdac::reference {

/// Shape of an argument and value of a size.
Layout recurrenceLayout(const Case &c, const std::string &name);
int64_t recurrenceSize(const Case &c, const std::string &name);

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_RECURRENCECASE_H
