// torch's own convolution as a method: the one that always can. It is run by csrc/torch.
#pragma once
#include "select/method.h"

namespace convx::native {
extern const Method method;
}
